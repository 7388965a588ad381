package nft

import (
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/sluice-mesh/sluice/nft/internal/nlmsg"
	"github.com/sluice-mesh/sluice/nft/netns"
	"github.com/sluice-mesh/sluice/nft/netns/netnstest"
	"github.com/sluice-mesh/sluice/rules"
)

// newNSWithHooks creates a namespace with chains of iptables-legacy, iptables-nft and the nft
// command, some of which have the same hook and priority. The kernel registers the chains in the
// order of the commands.
func newNSWithHooks(t testing.TB) *netns.NS {
	t.Helper()
	ns := netnstest.New(t)
	for _, table := range []string{"raw", "mangle", "nat", "filter", "security"} {
		for _, program := range []string{"iptables-legacy-restore", "ip6tables-legacy-restore"} {
			restore(t, ns, program, "*"+table+
				"\n-A OUTPUT -m conntrack --ctstate INVALID -j ACCEPT\nCOMMIT\n")
		}
	}
	restore(t, ns, "iptables-nft-restore",
		"*raw\n-A OUTPUT -m mark --mark 1 -j ACCEPT\nCOMMIT\n*nat\n-A OUTPUT -m mark --mark 1\nCOMMIT\n")
	load(t, ns,
		"table inet a { chain p { type filter hook output priority -300; }; chain q { type filter hook output priority -300; }; }")
	load(t, ns,
		"table inet b { chain p { type filter hook output priority -300; }; chain n { type nat hook output priority -100; }; }")
	load(t, ns,
		"delete chain inet a p\nadd chain inet a p { type filter hook output priority -300; }")
	load(t, ns,
		"table ip6 c { chain p { type filter hook output priority -300; }; chain q { type filter hook output priority -100; }; }")
	return ns
}

// wantHooks contains the functions in the namespace of newNSWithHooks, by family and hook, in the
// order in which the kernel calls them. Among chains of equal priority, the chain that was
// registered last comes first.
var wantHooks = map[string]string{
	"ip prerouting": `
-400: ipv4_conntrack_defrag of module nf_defrag_ipv4 (defrag)
-300: iptables-legacy table ip raw
-200: ipv4_conntrack_in of module nf_conntrack (conntrack)
-150: iptables-legacy table ip mangle
-100: nf_nat_ipv4_pre_routing of module nf_nat (NAT)`,
	"ip output": `
-400: ipv4_conntrack_defrag of module nf_defrag_ipv4 (defrag)
-300: chain inet a p
-300: chain inet b p
-300: chain inet a q
-300: chain ip raw OUTPUT
-300: iptables-legacy table ip raw
-200: ipv4_conntrack_local of module nf_conntrack (conntrack)
-150: iptables-legacy table ip mangle
-100: nf_nat_ipv4_local_fn of module nf_nat (NAT)
0: iptables-legacy table ip filter
50: iptables-legacy table ip security`,
	"ip postrouting": `
-225: apparmor_ip_postroute (label)
-150: iptables-legacy table ip mangle
100: nf_nat_ipv4_out of module nf_nat (NAT)
2147483647: nf_confirm of module nf_conntrack (conntrack)`,
	"ip6 prerouting": `
-400: ipv6_defrag of module nf_defrag_ipv6 (defrag)
-300: iptables-legacy table ip6 raw
-200: ipv6_conntrack_in of module nf_conntrack (conntrack)
-150: iptables-legacy table ip6 mangle
-100: nf_nat_ipv6_in of module nf_nat (NAT)`,
	"ip6 output": `
-400: ipv6_defrag of module nf_defrag_ipv6 (defrag)
-300: chain ip6 c p
-300: chain inet a p
-300: chain inet b p
-300: chain inet a q
-300: iptables-legacy table ip6 raw
-200: ipv6_conntrack_local of module nf_conntrack (conntrack)
-150: iptables-legacy table ip6 mangle
-100: chain ip6 c q
-100: nf_nat_ipv6_local_fn of module nf_nat (NAT)
0: iptables-legacy table ip6 filter
50: iptables-legacy table ip6 security`,
	"ip6 postrouting": `
-225: apparmor_ip_postroute (label)
-150: iptables-legacy table ip6 mangle
100: nf_nat_ipv6_out of module nf_nat (NAT)
2147483647: nf_confirm of module nf_conntrack (conntrack)`,
}

// TestHookKindOfFunction covers functions of several kernels and security modules.
func TestHookKindOfFunction(t *testing.T) {
	for function, want := range map[string]HookKind{
		"iptable_mangle_hook": HookLegacy, "ip6table_mangle_hook": HookLegacy,
		"selinux_ip_output": HookLabel, "selinux_ipv4_output": HookLabel,
		"smack_ipv6_output": HookLabel, "smack_ip_output": HookLabel,
		"apparmor_ip_postroute": HookLabel,
		"ipv4_confirm":          HookConntrack, "ipv6_helper": HookConntrack,
		"bpf_prog_7b27_drop": HookOther, "ip_vs_local_request4": HookOther,
		"": HookOther,
	} {
		if got := hookKind(function); got != want {
			t.Errorf("%q has kind %d, want %d", function, got, want)
		}
	}
}

var kindNames = map[HookKind]string{
	HookOther: " (other)", HookConntrack: " (conntrack)", HookNAT: " (NAT)",
	HookDefrag: " (defrag)", HookLabel: " (label)",
}

// formatHooks formats the functions by family and hook, such as "ip output".
func formatHooks(lists []HookList) map[string]string {
	got := map[string]string{}
	for _, l := range lists {
		text := ""
		for _, f := range l.Functions {
			text += "\n" + f.String() + kindNames[f.Kind]
		}
		got[l.Family.String()+" "+l.Hook.String()] = text
	}
	return got
}

// TestHooksAreListedInTheKernelsOrder lists the functions of the running kernel. If the kernel does
// not support the lists, the test checks the error.
func TestHooksAreListedInTheKernelsOrder(t *testing.T) {
	ns := newNSWithHooks(t)
	lists, err := Hooks(ns)
	if err != nil {
		var unsupported *UnsupportedError
		if !errors.As(err, &unsupported) || unsupported.Feature != FeatureHooks ||
			!IsNotSupported(err) {
			t.Fatal(err)
		}
		if lists != nil {
			t.Errorf("lists %v, want only the error %v", lists, err)
		}
		return
	}
	// Ignore what depends on the host: modules may be built into the kernel, and the host may use
	// any security module.
	got := formatHooks(lists)
	for place, text := range got {
		got[place] = hostDetail.ReplaceAllString(text, "")
	}
	want := map[string]string{}
	for place, text := range wantHooks {
		want[place] = hostDetail.ReplaceAllString(text, "")
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("hooks (-want +got):\n%s", diff)
	}
	if *update {
		recordHooks(t, ns)
	}
}

var hostDetail = regexp.MustCompile(` of module \w+|\n.*\(label\)`)

// TestHooksOfOtherKernels decodes answers of other kernels, which were recorded in the namespace of
// newNSWithHooks.
func TestHooksOfOtherKernels(t *testing.T) {
	files, err := filepath.Glob("testdata/hooks-linux-*.hex")
	if err != nil || len(files) == 0 {
		t.Fatalf("%d files with recorded answers, error %v, want at least one", len(files), err)
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			answers := recordedHooks(t, file)
			lists, err := scripted(t, nil, func(request []byte, _ func([]byte) [][]byte) [][]byte {
				answer, recorded := answers[placeOf(request)]
				if !recorded {
					return [][]byte{encodeAnswer(request, unix.NLMSG_DONE, 0, 0, 0, 0, 0)}
				}
				return [][]byte{withSequenceOf(request, answer)}
			}).hooks()
			if err != nil {
				t.Fatal(err)
			}
			want := map[string]string{}
			for place, text := range wantHooks {
				if want[place] = text; answers[place] == nil {
					want[place] = "" // not recorded
				}
			}
			if diff := cmp.Diff(want, formatHooks(lists)); diff != "" {
				t.Errorf("hooks (-want +got):\n%s", diff)
			}
		})
	}
}

// placeOf returns the family and hook of a request, such as "ip output".
func placeOf(request []byte) string {
	family, _ := decodeFamily(request[unix.NLMSG_HDRLEN])
	number := attributes(request[unix.NLMSG_HDRLEN+4:]).Number(nfnlaHookNumber)
	if number >= uint32(rules.Ingress) {
		return ""
	}
	return family.String() + " " + rules.Hook(number).String()
}

// recordHooks writes the answers of the running kernel to testdata. Each line contains a family, a
// hook, and the messages of the answer in hexadecimal.
func recordHooks(t *testing.T, ns *netns.NS) {
	var name unix.Utsname
	if err := unix.Uname(&name); err != nil {
		t.Fatal(err)
	}
	var text strings.Builder
	c := scripted(t, ns, func(request []byte, kernel func([]byte) [][]byte) [][]byte {
		datagrams := kernel(request)
		fmt.Fprintf(&text, "%s %x\n", placeOf(request), concatenated(datagrams))
		return datagrams
	})
	if _, err := c.hooks(); err != nil {
		t.Fatal(err)
	}
	version := strings.SplitN(unix.ByteSliceToString(name.Release[:]), ".", 3)
	t.Log(text.String()) // in a virtual machine of e2e/kernels, the written file is lost
	file := filepath.Join("testdata", "hooks-linux-"+version[0]+"."+version[1]+".hex")
	if err := os.WriteFile(file, []byte(text.String()), 0o600); err != nil {
		t.Fatal(err)
	}
}

func concatenated(parts [][]byte) []byte {
	var all []byte
	for _, p := range parts {
		all = append(all, p...)
	}
	return all
}

// recordedHooks reads a file that recordHooks has written. It returns the answers by family and
// hook.
func recordedHooks(t testing.TB, file string) map[string][]byte {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	answers := map[string][]byte{}
	for line := range strings.Lines(string(text)) {
		words := strings.Fields(line)
		data, err := hex.DecodeString(words[2])
		if err != nil {
			t.Fatal(err)
		}
		answers[words[0]+" "+words[1]] = data
	}
	return answers
}

// TestAnInterruptedListOfHooksIsReadAgain marks the first list as interrupted by a change.
func TestAnInterruptedListOfHooksIsReadAgain(t *testing.T) {
	answers := recordedHooks(t, "testdata/hooks-linux-6.12.hex")
	var requested atomic.Int32
	c := scripted(t, nil, func(request []byte, _ func([]byte) [][]byte) [][]byte {
		answer := encodeAnswer(request, unix.NLMSG_DONE, 0, 0, 0, 0, 0)
		if recorded, ok := answers[placeOf(request)]; ok {
			answer = withSequenceOf(request, recorded)
		}
		if requested.Add(1) == 1 {
			native.PutUint16(answer[6:], native.Uint16(answer[6:])|unix.NLM_F_DUMP_INTR)
		}
		return [][]byte{answer}
	})
	if _, err := c.hooks(); err != nil || requested.Load() != 7 {
		t.Errorf("%d requests, error %v, want 7 requests: 6 lists, one of them twice",
			requested.Load(), err)
	}
}

// TestErrorsOfHooksAreClassified covers a kernel that does not support the lists, a missing
// permission, and other errors.
func TestErrorsOfHooksAreClassified(t *testing.T) {
	for _, row := range []struct {
		errno unix.Errno
		is    func(error) bool
	}{
		{unix.EINVAL, IsNotSupported},
		{unix.EPROTONOSUPPORT, IsNotSupported},
		{unix.EPERM, IsNotPermitted},
		{unix.ENOBUFS, func(err error) bool {
			return !IsNotSupported(err) && !IsNotPermitted(err)
		}},
	} {
		c := scripted(t, nil, func(request []byte, _ func([]byte) [][]byte) [][]byte {
			return [][]byte{encodeError(native.Uint32(request[8:]), row.errno, unix.NLM_F_CAPPED)}
		})
		if _, err := c.hooks(); err == nil || !row.is(err) || !errors.Is(err, row.errno) {
			t.Errorf("errno %v: error %v, want an error of the right class that wraps the errno",
				row.errno, err)
		}
	}
}

// TestLegacyTablesAreDistinguished covers the function names of old and new kernels.
func TestLegacyTablesAreDistinguished(t *testing.T) {
	for _, row := range []struct {
		function string
		priority int
		want     string
	}{
		{"iptable_raw_hook", -300, "raw"},
		{"iptable_raw_hook", -450, "raw"},
		{"ipt_do_table", -450, "raw"},
		{"ip6table_mangle_hook", -150, "mangle"},
		{"iptable_nat_do_chain", -100, "nat"},
		{"ip6t_do_table", -100, "nat"},
		{"ip6table_filter_hook", 0, "filter"},
		{"ipt_do_table", 0, "filter"},
		{"ipt_do_table", 50, "security"},
		{"iptable_security_hook", 50, "security"},
		{"ipt_do_table", 7, ""},
	} {
		var m messages
		m.addText(nfnlaHookFunction, row.function)
		m.addNumber(nfnlaHookPriority, uint32(row.priority))
		got := decodeHook(rules.IPv4, m.buf)
		want := HookFunction{
			Kind: HookLegacy, Priority: row.priority, Name: row.function, Family: rules.IPv4,
			Table: row.want,
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("hooks (-want +got):\n%s", diff)
		}
	}
}

// FuzzDecodeHook checks that any function is decoded, and that only a function with the description
// of a chain is decoded as a chain.
func FuzzDecodeHook(f *testing.F) {
	for _, datagram := range recordedHooks(f, "testdata/hooks-linux-6.12.hex") {
		for len(datagram) > unix.NLMSG_HDRLEN+4 {
			length := int(native.Uint32(datagram))
			f.Add(datagram[unix.NLMSG_HDRLEN+4 : length])
			datagram = datagram[nlmsg.Align(length):]
		}
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		a := attributes(data)
		h := decodeHook(rules.IPv6, a)
		if h.Kind == HookChain && a.Get(nfnlaHookChainInfo) == nil {
			t.Errorf("%+v: want no chain without the description of a chain", h)
		}
		if h.Kind != HookChain && h.Chain != "" ||
			h.Kind != HookChain && h.Kind != HookLegacy && h.Table != "" {
			t.Errorf("%+v: want Chain only for chains, and Table only for chains and legacy tables",
				h)
		}
		if h.String() == "" {
			t.Errorf("%+v: String returns an empty text, want a description", h)
		}
	})
}
