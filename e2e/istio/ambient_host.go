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

// An AmbientHostConfiguration is a configuration of istio-cni for a node with pods in ambient mode.
type AmbientHostConfiguration struct {
	IPv6 bool
	// IPv4Source and IPv6Source are the source addresses of probes.
	IPv4Source, IPv6Source netip.Addr
	Kubelet                string // name of the kubelet's process
	KubeletUID             uint32
	// Changes are the additions and removals of pods, in order.
	Changes []PodChange
}

// A PodChange adds a pod to the mesh, or removes a pod from the mesh.
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

// hasIPv6 reports whether the pod has an IPv6 address that is not IPv4-mapped.
func (c PodChange) hasIPv6() bool {
	return slices.ContainsFunc(c.Addresses, func(a netip.Addr) bool { return a.Unmap().Is6() })
}

// String returns the configuration on one line.
func (c AmbientHostConfiguration) String() string {
	return fmt.Sprintf("%s %s=%d %s", strings.Join(c.environment(), " "), c.Kubelet, c.KubeletUID,
		strings.ReplaceAll(strings.TrimSuffix(c.changes(), "\n"), "\n", ", "))
}

// environment returns the settings that the program istio-ambient reads from environment variables.
func (c AmbientHostConfiguration) environment() []string {
	return []string{
		fmt.Sprintf("AMBIENT_IPV6=%t", c.IPv6), "HOST_PROBE_SNAT_IP=" + c.IPv4Source.String(),
		"HOST_PROBE_SNAT_IPV6=" + c.IPv6Source.String(),
	}
}

// changes returns the changes as the input of the program istio-ambient.
func (c AmbientHostConfiguration) changes() string {
	var b strings.Builder
	for _, change := range c.Changes {
		fmt.Fprintln(&b, change)
	}
	return b.String()
}

// FailsWithoutIPv6 reports whether istio-cni fails because a pod has an IPv6 address although IPv6
// is disabled. The iptables backend can neither add nor remove the address. The nftables backend
// can add it, but cannot remove it.
func (c AmbientHostConfiguration) FailsWithoutIPv6(nftables bool) bool {
	return !c.IPv6 && slices.ContainsFunc(c.Changes, func(change PodChange) bool {
		return change.hasIPv6() && (change.Remove || !nftables)
	})
}

// Pods returns the addresses of the pods that are in the mesh after all changes.
func (c AmbientHostConfiguration) Pods() []netip.Addr {
	pods := map[string][]netip.Addr{}
	for _, change := range c.Changes {
		if change.Remove {
			delete(pods, change.UID)
		} else {
			pods[change.UID] = change.Addresses
		}
	}
	var all []netip.Addr
	for _, addresses := range pods {
		all = append(all, addresses...)
	}
	slices.SortFunc(all, netip.Addr.Compare)
	return all
}

// AmbientHost returns the configuration as Sluice's parameters for a node with cgroup v2.
func (c AmbientHostConfiguration) AmbientHost() rules.AmbientHost {
	h := rules.DefaultAmbientHost()
	h.Pods, h.IPv6, h.KubeletUID = c.Pods(), c.IPv6, c.KubeletUID
	h.ProbeSourceIPv4, h.ProbeSourceIPv6 = c.IPv4Source, c.IPv6Source
	h.Kubelet = rules.CgroupOf("/system.slice/kubelet.service")
	return h
}

// RunAmbientHost runs the program istio-ambient for a node in the namespace, with its iptables or
// nftables backend.
func (p Program) RunAmbientHost(
	ns *netns.NS, c AmbientHostConfiguration, nftables bool,
) (Result, error) {
	dir, err := os.MkdirTemp("", "istio-ambient-")
	if err != nil {
		return Result{}, err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	for i, process := range []struct {
		name string
		uid  uint32
	}{{"kube-proxy", c.KubeletUID + 1}, {c.Kubelet, c.KubeletUID}} {
		if err := writeProcess(filepath.Join(dir, "proc", strconv.Itoa(i+1)), process.name,
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

// writeProcess writes the files by which istio-cni recognizes the kubelet. dir is the directory of
// the process in a replacement for /proc.
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

// RandomAmbientHosts returns n different random configurations. Equal seeds yield equal
// configurations. No two pods have the same address at the same time.
func RandomAmbientHosts(seed uint64, n int) []AmbientHostConfiguration {
	r := rand.New(rand.NewPCG(seed, 1))
	return distinct(n, func() AmbientHostConfiguration {
		return AmbientHostConfiguration{
			IPv6: r.IntN(3) > 0, IPv4Source: pick(r, ipv4Sources), IPv6Source: pick(r, ipv6Sources),
			Kubelet:    pick(r, []string{"kubelet", "kubelet", "kubelite"}),
			KubeletUID: pick(r, []uint32{0, 0, 1000, 65534, 1<<32 - 2}),
			Changes:    randomChanges(r, r.IntN(maxPodChanges+1)),
		}
	})
}

// randomChanges returns n changes. On average, at least three of five add a new pod; the others
// remove a pod or add it again. A new pod may get an address of a removed pod.
func randomChanges(r *rand.Rand, n int) []PodChange {
	const removePod, addPodAgain = 0, 1 // other numbers: add a new pod
	var changes, present []PodChange
	used := map[netip.Addr]bool{}
	for i := range n {
		action := r.IntN(5)
		if len(present) == 0 || action > addPodAgain {
			pod := PodChange{
				UID:       fmt.Sprintf("%08d-aaaa-4bbb-8ccc-0123456789ab", i),
				Addresses: randomPodAddresses(r, used),
			}
			changes, present = append(changes, pod), append(present, pod)
			continue
		}
		j := r.IntN(len(present))
		pod := present[j]
		if action == removePod {
			pod.Remove = true
			present = slices.Delete(present, j, j+1)
			for _, a := range pod.Addresses {
				delete(used, a.Unmap())
			}
		}
		changes = append(changes, pod)
	}
	return changes
}

// randomPodAddresses returns an IPv4 address, an IPv6 address or both, and adds them to used. It
// returns no address that is already in used. Many addresses are adjacent.
func randomPodAddresses(r *rand.Rand, used map[netip.Addr]bool) []netip.Addr {
	unused := func(networks []string) netip.Addr {
		for {
			bytes := netip.MustParseAddr(pick(r, networks)).As16()
			bytes[15] += byte(r.IntN(1 << (1 + r.IntN(8)))) // small numbers are more frequent
			addr := netip.AddrFrom16(bytes)
			if r.IntN(10) > 0 {
				addr = addr.Unmap() // otherwise, an IPv4 address is IPv4-mapped
			}
			if !used[addr.Unmap()] {
				used[addr.Unmap()] = true
				return addr
			}
		}
	}
	const onlyIPv6, onlyIPv4 = 0, 1 // other numbers: both
	var addresses []netip.Addr
	families := r.IntN(4)
	if families != onlyIPv6 {
		addresses = append(addresses,
			unused([]string{"10.244.1.0", "10.244.1.0", "192.168.7.0", "100.64.0.0"}))
	}
	if families != onlyIPv4 {
		addresses = append(addresses,
			unused([]string{"fd00:10:244:1::", "fd00:10:244:1::", "2001:db8::ff00"}))
	}
	return addresses
}
