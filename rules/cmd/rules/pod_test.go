package main

import (
	"bytes"
	"errors"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/sluice-mesh/sluice/nft/netns"
	"github.com/sluice-mesh/sluice/rules"
	params "github.com/sluice-mesh/sluice/rules/parameter"
)

// testSystem returns a system without a pod's files and users, and its stderr.
func testSystem() (*system, *bytes.Buffer) {
	stderr := new(bytes.Buffer)
	unknown := func(string) (uint32, error) { return 0, errors.New("unknown") }
	return &system{
		stdout: new(bytes.Buffer), stderr: stderr,
		variable: func(string) (string, bool) { return "", false },
		users:    unknown, groups: unknown,
		addresses: func(*netns.NS) ([]netip.Addr, error) { return nil, nil },
	}, stderr
}

// addrs parses addresses.
func addrs(texts ...string) []netip.Addr {
	var list []netip.Addr
	for _, text := range texts {
		list = append(list, netip.MustParseAddr(text))
	}
	return list
}

func TestAddressesDecideWhetherIPv6IsCaptured(t *testing.T) {
	for _, test := range []struct {
		name      string
		found     []netip.Addr
		dualStack bool
		ipv6      bool
		warning   string
		err       string
	}{
		{name: "IPv4 only", found: addrs("10.0.0.5")},
		{name: "IPv6 only", found: addrs("fd00::5"), ipv6: true},
		{
			name: "an IPv6 address before IPv4, but not dual-stack", found: addrs("fd00::5", "10.0.0.5"),
			warning: "IPv6 is not captured: it has fd00::5",
		},
		{
			name: "an IPv6 address, but not dual-stack", found: addrs("10.0.0.5", "fd00::5"),
			warning: "IPv6 is not captured: it has fd00::5",
		},
		{name: "dual-stack", found: addrs("10.0.0.5", "fd00::5"), dualStack: true, ipv6: true},
		{
			name:  "dual-stack with several IPv4 addresses",
			found: addrs("10.0.0.5", "10.1.0.5", "fd00::5", "10.2.0.5"), dualStack: true,
			ipv6: true,
		},
		{name: "dual-stack without IPv6", found: addrs("10.0.0.5"), dualStack: true},
		{
			name:  "loopback and link-local addresses are ignored",
			found: addrs("127.0.0.1", "::1", "fe80::1", "ff02::1", "169.254.1.1", "fd00::5"),
			ipv6:  true,
		},
		{name: "an IPv4-mapped address is IPv4", found: addrs("::ffff:10.0.0.5")},
		{
			name: "no address", found: addrs("127.0.0.1", "fe80::1"),
			err: "no valid local IP address",
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			s, stderr := testSystem()
			s.addresses = func(*netns.NS) ([]netip.Addr, error) { return test.found, nil }
			p := defaultParameters(params.Names{Users: s.users, Groups: s.groups})
			p.DualStack = test.dualStack
			r, err := s.complete(p, nil)
			if test.err != "" {
				if err == nil || !strings.Contains(err.Error(), test.err) ||
					exitCode(err) != exitSystemError {
					t.Fatalf("error %v, want %q", err, test.err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if r.IPv6 != test.ipv6 {
				t.Errorf("IPv6 is %v, want %v", r.IPv6, test.ipv6)
			}
			if got := stderr.String(); test.warning == "" && got != "" ||
				!strings.Contains(got, test.warning) {
				t.Errorf("warning %q, want %q", got, test.warning)
			}
		})
	}
}

func TestNameserversOfResolvConf(t *testing.T) {
	for _, test := range []struct {
		name, file string
		want       []netip.Addr
	}{
		{
			"several, of both families", "nameserver 10.96.0.10\nnameserver fd00::a\n",
			addrs("10.96.0.10", "fd00::a"),
		},
		{
			"more than the three servers of libc",
			"nameserver 10.0.0.1\nnameserver 10.0.0.2\nnameserver 10.0.0.3\nnameserver 10.0.0.4\n",
			addrs("10.0.0.1", "10.0.0.2", "10.0.0.3", "10.0.0.4"),
		},
		{
			"duplicates stay", "nameserver 10.0.0.1\nnameserver 10.0.0.1\n",
			addrs("10.0.0.1", "10.0.0.1"),
		},
		{"a zone is dropped", "nameserver fe80::1%eth0\n", addrs("fe80::1")},
		{
			"blanks, comments, other keywords",
			"# nameserver 10.0.0.9\n; nameserver 10.0.0.8\nsearch a b\n\tnameserver\t 10.0.0.1  # x\n",
			addrs("10.0.0.1"),
		},
		{
			"invalid addresses are ignored",
			"nameserver dns.example\nnameserver\nnameserver 10.0.0.1\n", addrs("10.0.0.1"),
		},
		{"none", "search a\n", nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "resolv.conf")
			if err := os.WriteFile(path, []byte(test.file), 0o600); err != nil {
				t.Fatal(err)
			}
			got, err := nameservers(path)
			if err != nil || !slices.Equal(got, test.want) {
				t.Errorf("got %v, %v; want %v", got, err, test.want)
			}
		})
	}
}

func TestMissingProxyIDsAreDerived(t *testing.T) {
	users := func(name string) (uint32, error) {
		if name == "istio-proxy" {
			return 1400, nil
		}
		return 0, errors.New("unknown")
	}
	for _, test := range []struct {
		name       string
		uids, gids []rules.IDRange
		user       string
		users      rules.Lookup
		wantUIDs   []rules.IDRange
		wantGIDs   []rules.IDRange
	}{
		{
			"the default user does not exist", nil, nil, "istio-proxy", func(string) (uint32, error) {
				return 0, errors.New("unknown")
			},
			rules.Singles[uint32](1337), rules.Singles[uint32](1337),
		},
		{
			"the default user exists", nil, nil, "istio-proxy", users,
			rules.Singles[uint32](1400), rules.Singles[uint32](1400),
		},
		{
			"another user does not exist", nil, nil, "envoy", users, rules.Singles[uint32](1337),
			rules.Singles[uint32](1337),
		},
		{
			"users only", rules.Singles[uint32](5, 6), nil, "istio-proxy", users,
			rules.Singles[uint32](5, 6), rules.Singles[uint32](5, 6),
		},
		{
			"groups only", nil, rules.Singles[uint32](7), "istio-proxy", users,
			rules.Singles[uint32](1400), rules.Singles[uint32](7),
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			p := defaultParameters(params.Names{Users: test.users})
			p.EnvoyUser, p.Redirect.ProxyUIDs, p.Redirect.ProxyGIDs = test.user, test.uids,
				test.gids
			p.IdentifyProxy(p.names.Users)
			if r := p.Redirect; !slices.Equal(r.ProxyUIDs, test.wantUIDs) ||
				!slices.Equal(r.ProxyGIDs, test.wantGIDs) {
				t.Errorf("uids %v, gids %v; want %v and %v", r.ProxyUIDs, r.ProxyGIDs,
					test.wantUIDs, test.wantGIDs)
			}
		})
	}
}

// A pod without addresses is a finding of doctor. If the addresses cannot be read, doctor warns.
func TestDoctorWarnsIfAddressesCannotBeRead(t *testing.T) {
	for want, addressesErr := range map[string]error{"": nil, "too many open files": unix.EMFILE} {
		s, errs := testSystem()
		s.addresses = func(*netns.NS) ([]netip.Addr, error) { return nil, addressesErr }
		if err := s.completeForDoctor(defaultParameters(params.Names{}), nil); err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(errs.String(), want) || want == "" && errs.Len() > 0 {
			t.Errorf("error %v: got %q, want %q", addressesErr, errs, want)
		}
	}
}
