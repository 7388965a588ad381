package decide_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/sluice-mesh/sluice/plugin/decide"
	"github.com/sluice-mesh/sluice/rules"
)

const (
	wantPorts      = "want a list of ports from 0 to 65535, separated by commas"
	wantPrefixes   = "want a list of prefixes such as 10.0.0.0/8 or fd00::/8, separated by commas without blanks"
	wantAllOr      = `want "*" for all, or `
	wantInterfaces = "want a list of interface names, separated by commas: a letter, and up to 14 letters, digits, _ . and -"
)

// withoutWant removes the word "want" from the beginning of a text.
func withoutWant(text string) string { return strings.TrimPrefix(text, "want ") }

// TestAllErrorsAreListed checks the complete error of a pod with many invalid values.
func TestAllErrorsAreListed(t *testing.T) {
	_, _, err := decide.Parameters(readPod(t, "wrong"), ipv4, &settings)
	if err == nil {
		t.Fatal("Parameters returns no error, want one")
	}
	want := []string{
		`argument --envoy-port (-p) of container istio-validation: "0" is not allowed: want a port from 1 to 65535`,
		`annotation sidecar.istio.io/interceptionMode: "tproxy" is not allowed: want REDIRECT, TPROXY or NONE`,
		`annotation traffic.sidecar.istio.io/includeInboundPorts: "80-90" is not allowed: ` +
			wantAllOr + withoutWant(wantPorts),
		`annotation traffic.sidecar.istio.io/excludeInboundPorts: "*" is not allowed: ` + wantPorts,
		`annotation status.sidecar.istio.io/port: "65536" is not allowed: want a port from 0 to 65535`,
		`annotation traffic.sidecar.istio.io/includeOutboundIPRanges: "*" is not allowed: ` +
			wantAllOr + withoutWant(wantPrefixes),
		`annotation traffic.sidecar.istio.io/excludeOutboundIPRanges: "*" is not allowed: ` +
			wantPrefixes,
		`annotation traffic.sidecar.istio.io/includeOutboundPorts: "*" is not allowed: ` +
			wantPorts,
		`annotation traffic.sidecar.istio.io/excludeOutboundPorts: "80a" is not allowed: ` +
			wantPorts,
		`annotation traffic.sidecar.istio.io/excludeOutboundPorts: "*" is not allowed: ` +
			wantPorts,
		`variable ISTIO_OUTBOUND_IPV4_LOOPBACK_CIDR of container istio-proxy: "10.0.0.0/8" is not allowed: ` +
			`want an IPv4 loopback prefix from /8 to /32, such as 127.0.0.1/32`,
		`annotation traffic.sidecar.istio.io/excludeInterfaces: "" is not allowed: ` +
			wantInterfaces,
		`annotation traffic.sidecar.istio.io/excludeInterfaces: "a-name-that-is-too-long" is not allowed: ` + wantInterfaces,
		`annotation istio.io/reroute-virtual-interfaces: "0virt" is not allowed: ` + wantInterfaces,
		`variable ISTIO_DUAL_STACK of container istio-proxy: "yes" is not allowed: want true or false`,
	}
	if d := diff(want, strings.Split(err.Error(), "\n")); d != "" {
		t.Errorf("lines of the error (-want +got):\n%s", d)
	}
}

// TestValuesThatTheInjectorRejectsAreFaults checks that Parameters rejects the values that the
// injector's validation rejects, and the mode NONE, for which Parameters must not be called.
func TestValuesThatTheInjectorRejectsAreFaults(t *testing.T) {
	const (
		ports    = traffic + "includeInboundPorts"
		prefixes = traffic + "includeOutboundIPRanges"
		names    = traffic + "excludeInterfaces"
	)
	for _, test := range []struct{ name, annotation, text, wrong string }{
		{"a port above 65535", ports, "80,65536", `"65536"`},
		{"a negative port", ports, "-1", `"-1"`},
		{"a range with a dash", ports, "80-90", `"80-90"`},
		{"a range with a colon", ports, "80:90", `"80:90"`},
		{"an empty element", ports, "80,,90", `""`},
		{"a last comma", ports, "80,", `""`},
		{"all ports among others", ports, "*,80", `"*"`},
		{"all ports with a space", ports, "* ", `"*"`},
		{"digits of another script", ports, "８０", `"８０"`},
		{"an address without a prefix length", prefixes, "10.0.0.1", `"10.0.0.1"`},
		{"a space between prefixes", prefixes, "10.0.0.0/8, 192.168.0.0/16", `" 192.168.0.0/16"`},
		{"a prefix length that is too large", prefixes, "10.0.0.0/33", `"10.0.0.0/33"`},
		{"a zone", prefixes, "fe80::%eth0/64", `"fe80::%eth0/64"`},
		{"a name instead of a prefix", prefixes, "localhost", `"localhost"`},
		{"an interface of 16 bytes", names, "abcdefghijklmnop", `"abcdefghijklmnop"`},
		{"an interface that begins with a digit", names, "0eth", `"0eth"`},
		{"an interface with a wildcard", names, "eth+", `"eth+"`},
		{"an interface with an at sign", names, "eth@1", `"eth@1"`},
		{"an interface with a slash", names, "a/../../b", `"a/../../b"`},
		{"an interface with a line break", names, "eth0\nx", `"eth0\nx"`},
		{"an empty interface", names, ",", `""`},
		{"no mode", "sidecar.istio.io/interceptionMode", "", `""`},
		{"a mode in lower case", "sidecar.istio.io/interceptionMode", "redirect", `"redirect"`},
		{"NONE, which an earlier decision handles", "sidecar.istio.io/interceptionMode", "NONE", `"NONE"`},
		{"an empty status port", "status.sidecar.istio.io/port", "", `""`},
	} {
		t.Run(test.name, func(t *testing.T) {
			pod := meshPod()
			pod.Metadata.Annotations[test.annotation] = test.text
			r, _, err := decide.Parameters(pod, ipv4, &decide.Settings{})
			want := fmt.Sprintf("annotation %s: %s is not allowed: want ", test.annotation,
				test.wrong)
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("error %v, want %s", err, want)
			}
			if d := diff(rules.Redirect{}, r); d != "" {
				t.Errorf("a redirection in addition to the error (-empty +got):\n%s", d)
			}
		})
	}
}

// TestFaultsNameTheSourceOfTheValue checks that the fault of a value that is well-formed but not
// allowed names the source of the value.
func TestFaultsNameTheSourceOfTheValue(t *testing.T) {
	groups := make([]string, 65)
	for i := range groups {
		groups[i] = fmt.Sprint(i)
	}
	for _, test := range []struct {
		name  string
		place place
		text  string
		want  string
	}{
		{
			"the mark of the proxy's connections to itself",
			place{"letter", "t"},
			"1338",
			`argument --istio-inbound-tproxy-mark (-t) of container istio-validation: "1338" is not allowed`,
		},
		{
			"the kernel's main table",
			place{"variable", "ISTIO_INBOUND_TPROXY_ROUTE_TABLE"},
			"254",
			`variable ISTIO_INBOUND_TPROXY_ROUTE_TABLE of container istio-proxy: "254" is not allowed`,
		},
		{
			"more groups than Istio allows",
			place{"variable", "ISTIO_OUTBOUND_OWNER_GROUPS"},
			strings.Join(groups, ","),
			`variable ISTIO_OUTBOUND_OWNER_GROUPS of container istio-proxy: "65 groups" is not allowed`,
		},
		{
			"a descending range of ports",
			place{"letter", "d"},
			"22,90:80",
			`argument --istio-local-exclude-ports (-d) of container istio-validation: "90:80" is not allowed: ` +
				`want a list of ports from 0 to 65535 and of ranges such as 8000:9000, separated by commas`,
		},
		{
			"all ports among others",
			place{"letter", "b"},
			"*,80",
			`argument --istio-inbound-ports (-b) of container istio-validation: "*,80" is not allowed: ` +
				`want "*" for all, or a list of ports from 0 to 65535 and of ranges such as 8000:9000, separated by commas`,
		},
		{
			"a name that no interface can have",
			place{"variable", "ISTIO_EXCLUDE_INTERFACES"},
			"eth+,a/b",
			`variable ISTIO_EXCLUDE_INTERFACES of container istio-proxy: "a/b" is not allowed: ` +
				`want a list of interface names of at most 15 bytes, separated by commas; + or * at the end of a name stands for any rest`,
		},
		{
			"a descending range of ids",
			place{"variable", "ISTIO_OUTBOUND_OWNER_GROUPS"},
			"1,5-4",
			`variable ISTIO_OUTBOUND_OWNER_GROUPS of container istio-proxy: "5-4" is not allowed: ` +
				`want "*" for all, or a list of numeric ids from 0 to 4294967294, and of ranges of ids, separated by commas`,
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			pod := meshPod()
			pod.Metadata.Annotations["sidecar.istio.io/interceptionMode"] = "TPROXY"
			test.place.set(pod, test.text)
			_, _, err := decide.Parameters(pod, ipv4, &decide.Settings{})
			if err == nil || !strings.HasPrefix(err.Error(), test.want) ||
				strings.Contains(err.Error(), "\n") {
				t.Errorf("error %v, want %s", err, test.want)
			}
		})
	}
}

func TestInvalidIDsAreFaults(t *testing.T) {
	for _, id := range []int64{-1, 1<<32 - 1, 1 << 40} {
		pod := meshPod()
		pod.Spec.Containers[1].SecurityContext = &decide.SecurityContext{RunAsUser: &id}
		pod.Spec.SecurityContext = &decide.SecurityContext{RunAsGroup: &id}
		_, _, err := decide.Parameters(pod, ipv4, &decide.Settings{})
		for _, want := range []string{
			"securityContext.runAsUser of container istio-proxy: ",
			"securityContext.runAsGroup of the pod: ",
		} {
			if err == nil || !strings.Contains(err.Error(),
				want+fmt.Sprintf("%q", fmt.Sprint(id))) {
				t.Errorf("error %v, want %s%d", err, want, id)
			}
		}
	}
}

func TestErrorsAreBounded(t *testing.T) {
	const wrong = "annotation traffic.sidecar.istio.io/excludeOutboundPorts: "
	for text, want := range map[string][]string{
		strings.Repeat("x", 64):                          {strings.Repeat("x", 64) + `" is`},
		strings.Repeat("x", 65):                          {strings.Repeat("x", 61) + `…" is`},
		strings.TrimSuffix(strings.Repeat("x,", 8), ","): slices.Repeat([]string{`"x" is`}, 8),
		strings.TrimSuffix(strings.Repeat("x,", 9),
			","): append(slices.Repeat([]string{`"x" is`}, 8), "one more element is"),
	} {
		pod := meshPod()
		pod.Metadata.Annotations[traffic+"excludeOutboundPorts"] = text
		_, _, err := decide.Parameters(pod, ipv4, &decide.Settings{})
		lines := strings.Split(fmt.Sprint(err), "\n")
		if len(lines) != len(want) {
			t.Errorf("%s: %d faults, want %d: %v", text, len(lines), len(want), err)
			continue
		}
		for i := range want {
			if !strings.HasPrefix(lines[i], wrong) || !strings.Contains(lines[i], want[i]) {
				t.Errorf("%s: %s, want %s", text, lines[i], want[i])
			}
		}
	}
	pod := meshPod()
	pod.Metadata.Annotations[traffic+"excludeOutboundPorts"] = strings.Repeat("x,", 100_000)
	pod.Metadata.Annotations[traffic+
		"excludeOutboundIPRanges"] = strings.Repeat("\n\x1b[31m", 20_000)
	_, _, err := decide.Parameters(pod, ipv4, &decide.Settings{})
	var faults rules.Faults
	if !errors.As(err, &faults) || len(faults) != 10 {
		t.Fatalf("%d faults, want 8 elements, the number of other elements, and one value: %v",
			len(faults), err)
	}
	// The list has 100,001 elements: the last one is empty.
	if got, want := faults[9].Value, "each of 99993 more elements"; got != want {
		t.Errorf("the number of other elements: %q, want %q", got, want)
	}
	for _, f := range faults {
		if line := f.String(); len(line) > 500 || strings.ContainsAny(line, "\n\x1b") {
			t.Errorf("the fault is not a short line of text: %d bytes: %q", len(line), line)
		}
	}
}
