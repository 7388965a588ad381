package netnstest_test

import (
	"errors"
	"strings"
	"testing"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/sluice-mesh/sluice/nft/netns"
	"github.com/sluice-mesh/sluice/nft/netns/netnstest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestLoopbackIsUp(t *testing.T) {
	for _, tc := range []struct {
		name string
		ns   *netns.NS
	}{
		{"New", netnstest.New(t)},
		{"NewInUserNS", netnstest.NewInUserNS(t)},
	} {
		t.Run(tc.name, func(t *testing.T) {
			for _, addr := range []string{"127.0.0.1:0", "[::1]:0"} {
				l := listen(t, tc.ns, "tcp", addr)
				if got := reachedAddr(t, tc.ns, l.Addr().String()); got != l.Addr().String() {
					t.Errorf("a connection to %v reached %s, want the same address", l.Addr(), got)
				}
			}
		})
	}
}

func TestUserNSOwnsTheNamespace(t *testing.T) {
	n := netnstest.NewInUserNS(t)
	owner, err := unix.IoctlRetInt(n.FD(), unix.NS_GET_USERNS)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(owner)
	var got, own unix.Stat_t
	if err := errors.Join(unix.Fstat(owner, &got),
		unix.Stat("/proc/self/ns/user", &own)); err != nil {
		t.Fatal(err)
	}
	if got.Ino == own.Ino {
		t.Error("the test's user namespace owns the namespace, want another user namespace")
	}
}

func TestRequireBinarySkipsOrFails(t *testing.T) {
	for _, tc := range []struct {
		name, require, ci string
		want              string
	}{
		{"without SLUICE_REQUIRE and CI the test is skipped", "", "", "skipped"},
		{"with SLUICE_REQUIRE=0 the test is skipped", "0", "false", "skipped"},
		{"with SLUICE_REQUIRE=1 the test fails", "1", "", "failed"},
		{"with CI=true the test fails", "", "true", "failed"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Setenv("SLUICE_REQUIRE", tc.require)
			t.Setenv("CI", tc.ci)
			t.Setenv("PATH", t.TempDir())
			rec := &recorder{TB: t}
			rec.run(func() { netnstest.RequireBinary(rec, "iptables-legacy-none") })
			if rec.outcome != tc.want || !strings.Contains(rec.text, "apt-get install iptables") {
				t.Errorf("the test is %s with %q, want %s with the package's name", rec.outcome, rec.text,
					tc.want)
			}
		})
	}
	if path := netnstest.RequireBinary(t, "cat"); !strings.HasSuffix(path, "/cat") {
		t.Errorf("path of cat %q, want a path that ends with /cat", path)
	}
}
