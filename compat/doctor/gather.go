package doctor

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/sluice-mesh/sluice/compat"
	"github.com/sluice-mesh/sluice/compat/bpf"
	"github.com/sluice-mesh/sluice/compat/foreign"
	"github.com/sluice-mesh/sluice/compat/xtables"
	"github.com/sluice-mesh/sluice/nft"
	"github.com/sluice-mesh/sluice/nft/dump"
	"github.com/sluice-mesh/sluice/nft/netns"
	"github.com/sluice-mesh/sluice/nft/route"
	"github.com/sluice-mesh/sluice/nft/xfrm"
	"github.com/sluice-mesh/sluice/rules"
	"github.com/sluice-mesh/sluice/rules/diff"
)

// Gather reads the facts about the namespace (nil: the current one) for the desired ruleset. It
// does not change the namespace, and creates no table of iptables-legacy. Without privileges it
// returns the facts that any process may read. The budget limits each decision of Gather and of the
// diagnosis of the facts.
func Gather(ns *netns.NS, desired rules.Ruleset, budget diff.Budget) Facts {
	f := Facts{Budget: budget}
	f.Kernel = kernelRelease()
	f.Features, f.FeaturesErr = nft.Probe()
	ruleset, err := nft.ReadAll(ns)
	f.Tables, f.TablesErr = ruleset.Tables, err
	err = ns.Do(func() error {
		f.Settings, f.SettingsErr = readSettings()
		f.InterfacesErr = f.readNetwork()
		f.IPsec, f.IPsecErr = xfrm.Drops(nil)
		f.Legacy, f.LegacyErr = readLegacyTables()
		f.Sockets, f.SocketsErr = readRawSockets()
		return nil
	})
	if err != nil {
		f.SettingsErr, f.InterfacesErr, f.IPsecErr, f.LegacyErr, f.SocketsErr = err, err, err, err, err
	}
	f.SocketsErr = errors.Join(f.SocketsErr, findProcesses(f.Sockets, procDir))
	f.Programs = bpf.List(ns, procDir)
	// Ignore the error: a missing permission is already reported for nf_tables.
	f.LegacyFeatures, _ = compat.ProbeLegacy(desired)
	effect := foreign.InspectAsInstalled(ns, desired, budget)
	f.Foreign = &effect
	if f.Drift, f.DriftErr = drift(ns, desired); len(f.Drift) > 0 {
		drifted := foreign.InspectDrifted(ns, desired, budget)
		f.DriftEffect = &drifted.Effect
	}
	return f
}

// drift compares the rules and routes of Sluice with the desired ruleset. It returns no differences
// unless exactly one backend has rules of Sluice.
func drift(ns *netns.NS, desired rules.Ruleset) ([]rules.Difference, error) {
	installed, err := compat.InstalledBackends(ns)
	if len(installed) != 1 {
		return nil, err
	}
	// If the other backend cannot be read, Check returns its error with the differences.
	found, err := installed[0].Check(ns, desired, compat.Snapshot{})
	return found.Differences, err
}

// kernelRelease returns the release of the running kernel, as uname -r prints it.
func kernelRelease() string {
	var name unix.Utsname
	if err := unix.Uname(&name); err != nil {
		return "of unknown release"
	}
	return unix.ByteSliceToString(name.Release[:])
}

const (
	procDir   = "/proc"
	sysctlDir = procDir + "/sys/net"
)

// readSettings returns the relevant sysctls of the thread's namespace.
func readSettings() (map[string]string, error) {
	if _, err := os.Stat(sysctlDir); err != nil {
		return nil, err
	}
	found := map[string]string{}
	for _, pattern := range []string{
		"ipv4/conf/*/src_valid_mark", "ipv4/ip_local_port_range", "ipv4/ip_local_reserved_ports",
		"ipv4/tcp_fwmark_accept", "ipv6/conf/*/disable_ipv6",
		"netfilter/nf_conntrack_tcp_loose", "netfilter/nf_conntrack_count",
		"netfilter/nf_conntrack_max", "netfilter/nf_conntrack_tcp_timeout_syn_sent",
		"netfilter/nf_conntrack_tcp_timeout_established",
		"netfilter/nf_conntrack_tcp_timeout_unacknowledged",
		"netfilter/nf_conntrack_tcp_timeout_max_retrans", "netfilter/nf_conntrack_udp_timeout",
	} {
		files, err := filepath.Glob(filepath.Join(sysctlDir, pattern))
		if err != nil {
			return nil, err
		}
		for _, file := range files {
			value, err := os.ReadFile(file)
			switch {
			case errors.Is(err, fs.ErrNotExist):
				continue // the interface was removed
			case err != nil:
				return found, err
			}
			name := strings.ReplaceAll(strings.TrimPrefix(file, "/proc/sys/"), "/", ".")
			found[name] = strings.TrimSpace(string(value))
		}
	}
	return found, nil
}

// readNetwork reads interfaces and routing of the thread's namespace.
func (f *Facts) readNetwork() error {
	h, err := (*netns.NS)(nil).Netlink(unix.NETLINK_ROUTE)
	if err != nil {
		return err
	}
	defer h.Close()
	links, err := listObjects(f, "interfaces", h.LinkList)
	addrs, addrErr := listObjects(f, "addresses", func() (map[int][]netip.Addr, error) {
		return route.InterfaceAddresses(nil)
	})
	var ruleErr, routeErr error
	f.PolicyRules, ruleErr = listObjects(f, "policy rules", func() ([]route.Rule, error) {
		return route.Rules(nil)
	})
	device := func(index int) string { return linkName(index, links) }
	f.Routes, routeErr = listObjects(f, "routes", func() ([]route.Route, error) {
		return route.Routes(nil, device)
	})
	for _, l := range links {
		a := l.Attrs()
		f.Interfaces = append(f.Interfaces, Interface{
			Name: a.Name, Up: a.Flags&net.FlagUp != 0, Addrs: addrs[a.Index],
		})
	}
	return errors.Join(err, addrErr, ruleErr, routeErr, f.readLookups(device))
}

// listObjects lists objects, and adds their name to f.Interrupted if a change interrupts each
// attempt. The list then lacks at most objects that have changed.
func listObjects[T any](f *Facts, objects string, read func() (T, error)) (T, error) {
	found, err := dump.Retry(dump.Attempts, read)
	switch {
	case errors.Is(err, netlink.ErrDumpInterrupted):
		f.Interrupted = append(f.Interrupted, objects)
	case err != nil:
		return found, fmt.Errorf("list %s: %w", objects, err)
	}
	return found, nil
}

// linkName returns the name of the interface with the index. If there is no such interface, it
// returns ifINDEX, as the ip command does.
func linkName(index int, links []netlink.Link) string {
	for _, l := range links {
		if l.Attrs().Index == index {
			return l.Attrs().Name
		}
	}
	return fmt.Sprintf("if%d", index)
}

// readLegacyTables returns the existing tables of iptables-legacy and ip6tables-legacy in the
// thread's namespace. Unlike iptables-legacy-save it does not create tables. The error is the error
// of listing the tables. The error of reading a table is in the table's Err.
func readLegacyTables() ([]LegacyTable, error) {
	ids, listErr := xtables.Tables(nil)
	var found []LegacyTable
	for _, id := range ids {
		t := LegacyTable{Family: id.Family, Name: id.Name}
		read, err := xtables.Read(nil, id.Family, id.Name)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			continue
		case err != nil:
			t.Err = err
		default:
			for _, c := range read.Chains {
				if c.Hook == nil {
					t.Chains = append(t.Chains, c.Name)
				}
				t.Rules += len(c.Rules)
			}
			t.Content = compat.DecodeTable(read)
		}
		found = append(found, t)
	}
	return found, listErr
}
