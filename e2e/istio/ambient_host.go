package istio

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/sluice-mesh/sluice/nft/netns"
	"github.com/sluice-mesh/sluice/rules"
)

// An AmbientHostConfiguration is a configuration of istio-cni for a node with pods in ambient mode,
// and what happens on the node.
type AmbientHostConfiguration struct {
	IPv6       bool
	IPv4Source netip.Addr // source address of probes
	IPv6Source netip.Addr
	Kubelet    string // name of the kubelet's process
	KubeletUID uint32
	Changes    []PodChange
}

// A PodChange adds a pod to the mesh, or removes it.
type PodChange struct {
	Remove    bool
	UID       string
	Addresses []netip.Addr
}

// String returns the change as the program istio-ambient reads it.
func (c PodChange) String() string {
	words := []string{"add", c.UID}
	if c.Remove {
		words[0] = "remove"
	}
	for _, a := range c.Addresses {
		words = append(words, a.String())
	}
	return strings.Join(words, " ")
}

// hasIPv6 reports whether one of the pod's addresses is of IPv6, and not a mapped one of IPv4.
func (c PodChange) hasIPv6() bool {
	return slices.ContainsFunc(c.Addresses, func(a netip.Addr) bool { return a.Unmap().Is6() })
}

// String returns the configuration in a line.
func (c AmbientHostConfiguration) String() string {
	return fmt.Sprintf("%s %s=%d %s", strings.Join(c.environment(), " "), c.Kubelet, c.KubeletUID,
		strings.ReplaceAll(strings.TrimSuffix(c.changes(), "\n"), "\n", ", "))
}

// environment returns the environment variables for the program istio-ambient.
func (c AmbientHostConfiguration) environment() []string {
	return []string{
		fmt.Sprintf("AMBIENT_IPV6=%t", c.IPv6), "HOST_PROBE_SNAT_IP=" + c.IPv4Source.String(),
		"HOST_PROBE_SNAT_IPV6=" + c.IPv6Source.String(),
	}
}

func (c AmbientHostConfiguration) changes() string {
	var b strings.Builder
	for _, change := range c.Changes {
		fmt.Fprintln(&b, change)
	}
	return b.String()
}

// FailsWithoutIPv6 reports whether istio-cni fails because a pod has an IPv6 address although IPv6
// is off. The iptables backend cannot add and remove the address, the nftables backend cannot
// remove it.
func (c AmbientHostConfiguration) FailsWithoutIPv6(nftables bool) bool {
	return !c.IPv6 && slices.ContainsFunc(c.Changes, func(change PodChange) bool {
		return change.hasIPv6() && (change.Remove || !nftables)
	})
}

// Pods returns the addresses of the pods that are in the mesh after all changes.
func (c AmbientHostConfiguration) Pods() []netip.Addr {
	pods := map[string][]netip.Addr{}
	for _, change := range c.Changes {
		if pods[change.UID] = change.Addresses; change.Remove {
			delete(pods, change.UID)
		}
	}
	var list []netip.Addr
	for _, addresses := range pods {
		list = append(list, addresses...)
	}
	slices.SortFunc(list, netip.Addr.Compare)
	return list
}

// AmbientHost returns Sluice's parameters, on a node with cgroups of version 2.
func (c AmbientHostConfiguration) AmbientHost() rules.AmbientHost {
	h := rules.DefaultAmbientHost()
	h.Pods, h.IPv6, h.KubeletUID = c.Pods(), c.IPv6, c.KubeletUID
	h.ProbeSourceIPv4, h.ProbeSourceIPv6 = c.IPv4Source, c.IPv6Source
	h.Kubelet = rules.CgroupOf("/system.slice/kubelet.service")
	return h
}

// RunAmbientHost runs the program istio-ambient for a node in the namespace, with its iptables or
// nftables backend.
func (p Program) RunAmbientHost(ns *netns.NS, c AmbientHostConfiguration, nftables bool,
) (Result, error) {
	dir, err := os.MkdirTemp("", "istio-ambient-")
	if err != nil {
		return Result{}, err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	for pid, process := range []struct {
		name string
		uid  uint32
	}{{"kube-proxy", c.KubeletUID + 1}, {c.Kubelet, c.KubeletUID}} {
		if err := writeProcess(filepath.Join(dir, "proc", strconv.Itoa(pid+1)), process.name,
			process.uid); err != nil {
			return Result{}, err
		}
	}
	cmd := exec.Command(string(p), "host")
	cmd.Stdin = strings.NewReader(c.changes())
	cmd.Env = append(environment(dir), c.environment()...)
	cmd.Env = append(cmd.Env, "HOST_MOUNTS_PATH="+dir, fmt.Sprintf("NATIVE_NFTABLES=%t", nftables))
	return run(ns, cmd)
}

// writeProcess writes the files of a process in /proc by which istio-cni recognizes the kubelet.
func writeProcess(dir, name string, uid uint32) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	for file, text := range map[string]string{
		"comm":    name + "\n",
		"cmdline": "/usr/bin/" + name + "\x00--config=/var/lib/kubelet/config.yaml\x00",
		"status":  fmt.Sprintf("Name:\t%s\nUid:\t%[2]d\t%[2]d\t%[2]d\t%[2]d\n", name, uid),
	} {
		if err := os.WriteFile(filepath.Join(dir, file), []byte(text), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// maxPodChanges is the largest number of changes of a random configuration.
const maxPodChanges = 20

// RandomAmbientHosts returns n different random configurations. The same seed returns the same
// configurations. No two pods have the same address at the same time.
func RandomAmbientHosts(seed uint64, n int) []AmbientHostConfiguration {
	r := rand.New(rand.NewPCG(seed, 1))
	seen := map[string]bool{}
	var list []AmbientHostConfiguration
	for len(list) < n {
		c := AmbientHostConfiguration{
			IPv6: r.IntN(3) > 0, IPv4Source: pick(r, ipv4Sources), IPv6Source: pick(r, ipv6Sources),
			Kubelet:    pick(r, []string{"kubelet", "kubelet", "kubelite"}),
			KubeletUID: pick(r, []uint32{0, 0, 1000, 65534, 1<<32 - 2}),
			Changes:    randomChanges(r, r.IntN(maxPodChanges+1)),
		}
		if !seen[c.String()] {
			seen[c.String()] = true
			list = append(list, c)
		}
	}
	return list
}

// randomChanges returns n changes: mostly new pods, and pods that are removed or added again. A new
// pod may get the address of a removed one.
func randomChanges(r *rand.Rand, n int) []PodChange {
	var list, present []PodChange
	used := map[netip.Addr]bool{}
	for i := range n {
		k := r.IntN(5)
		if len(present) == 0 || k > 1 {
			pod := PodChange{
				UID:       fmt.Sprintf("%08d-aaaa-4bbb-8ccc-0123456789ab", i),
				Addresses: randomPodAddresses(r, used),
			}
			list, present = append(list, pod), append(present, pod)
			continue
		}
		j := r.IntN(len(present))
		pod := present[j]
		if k == 0 {
			pod.Remove = true
			present = slices.Delete(present, j, j+1)
			for _, a := range pod.Addresses {
				delete(used, a.Unmap())
			}
		}
		list = append(list, pod)
	}
	return list
}

// randomPodAddresses returns an IPv4 address, an IPv6 address or both. Many are adjacent. It adds
// them to the used ones.
func randomPodAddresses(r *rand.Rand, used map[netip.Addr]bool) []netip.Addr {
	unused := func(networks []string) netip.Addr {
		for {
			a := netip.MustParseAddr(pick(r, networks)).As16()
			a[15] += byte(r.IntN(1 << (1 + r.IntN(8))))
			addr := netip.AddrFrom16(a)
			if r.IntN(10) > 0 {
				addr = addr.Unmap()
			}
			if !used[addr.Unmap()] {
				used[addr.Unmap()] = true
				return addr
			}
		}
	}
	var list []netip.Addr
	kind := r.IntN(4)
	if kind != 0 {
		list = append(list, unused([]string{"10.244.1.0", "10.244.1.0", "192.168.7.0", "100.64.0.0"}))
	}
	if kind != 1 {
		list = append(list, unused([]string{"fd00:10:244:1::", "fd00:10:244:1::", "2001:db8::ff00"}))
	}
	return list
}
