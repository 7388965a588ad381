package decide_test

import (
	"strings"
	"testing"

	"github.com/sluice-mesh/sluice/plugin/decide"
)

// TestArguments checks that arguments set the proxy's port (15001 by default) and the inbound port
// (15006 by default).
func TestArguments(t *testing.T) {
	for _, test := range []struct {
		name, args        string
		outbound, inbound uint16
		unknown           string // the end of the note
	}{
		{name: "no arguments", args: "", outbound: 15001, inbound: 15006},
		{name: "a letter", args: "istio-iptables -p 1 -z 2", outbound: 1, inbound: 2},
		{name: "a letter with its value", args: "-p1 -z=2", outbound: 1, inbound: 2},
		{name: "a long name", args: "--envoy-port 1 --inbound-capture-port=2", outbound: 1, inbound: 2},
		{name: "the last value applies", args: "-p 1 --envoy-port=3 -p 4 -z 2", outbound: 4, inbound: 2},
		{
			name: "a Boolean flag takes no argument",
			args: "--run-validation -p 1 --skip-rule-apply -z 2", outbound: 1, inbound: 2,
		},
		{name: "a Boolean flag before other letters", args: "-np1 -nz 2", outbound: 1, inbound: 2},
		{
			name: "a Boolean flag with a value", args: "-n=false -p 1 --dry-run=true -z 2",
			outbound: 1, inbound: 2,
		},
		{
			name: "a flag without effect takes its argument",
			args: "--probe-timeout -p --log_target=x -z 2", outbound: 15001, inbound: 2,
		},
		{
			name: "other words are ignored", args: "pilot-agent istio-iptables word -p 1 word - -z 2",
			outbound: 1, inbound: 2,
		},
		{name: "two dashes end the flags", args: "-p 1 -- -z 2", outbound: 1, inbound: 15006},
		{
			name: "an unknown name with its value", args: "--new 7 -p 1 --more=8 -z 2", outbound: 1,
			inbound: 2, unknown: `"--new", "--more"`,
		},
		{
			name: "an unknown name without value", args: "--future -p 1", outbound: 1,
			inbound: 15006, unknown: `"--future"`,
		},
		{
			name: "an unknown letter with its value", args: "-y 7 -p 1 -y7 -z 2", outbound: 1,
			inbound: 2, unknown: `"-y", "-y"`,
		},
		{
			name: "a character that is not a letter", args: "-é 7 -p 1", outbound: 1, inbound: 15006,
			unknown: `"-é"`,
		},
		{
			name: "an unknown name at the end", args: "-p 1 --future", outbound: 1, inbound: 15006,
			unknown: `"--future"`,
		},
		{
			name: "an invalid character", args: "-\xdd 7 -p 1", outbound: 1, inbound: 15006,
			unknown: `"-\xdd"`,
		},
		{name: "an empty name", args: "--= -p 1", outbound: 1, inbound: 15006, unknown: `"--"`},
		{
			name: "very many unknown flags", args: strings.Repeat("--x ", 1000), outbound: 15001,
			inbound: 15006, unknown: "and 992 more",
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			pod := meshPod()
			pod.Spec.InitContainers[0].Args = strings.Fields(test.args)
			r, notes, err := decide.Parameters(pod, ipv4, &decide.Settings{})
			if err != nil || r.ProxyPort != test.outbound || r.InboundCapturePort != test.inbound {
				t.Errorf("ports %d and %d, error %v, want %d and %d", r.ProxyPort, r.InboundCapturePort,
					err, test.outbound, test.inbound)
			}
			if test.unknown == "" {
				if len(notes) > 0 {
					t.Errorf("notes %v, want none", notes)
				}
				return
			}
			if len(notes) != 1 || notes[0].Kind != decide.ArgumentUnknown ||
				!strings.HasSuffix(notes[0].Message, test.unknown) {
				t.Errorf("notes %v, want one about %s", notes, test.unknown)
			}
		})
	}
}

// TestFlagsWithoutEffectTakeTheirOwnValue puts each flag without effect before the flag -p: the
// flag must take its own value, and nothing else.
func TestFlagsWithoutEffectTakeTheirOwnValue(t *testing.T) {
	read := func(args ...string) uint16 {
		pod := meshPod()
		pod.Spec.InitContainers[0].Args = args
		r, notes, err := decide.Parameters(pod, ipv4, &decide.Settings{})
		if err != nil || len(notes) > 0 {
			t.Errorf("%q: error %v, notes %v; want neither", args, err, notes)
		}
		return r.ProxyPort
	}
	for _, boolean := range []string{
		"dry-run", "skip-rule-apply", "run-validation", "cni-mode", "reconcile", "cleanup-only",
		"force-apply", "native-nftables", "log_as_json",
	} {
		if read("--"+boolean, "-p", "1") != 1 || read("--"+boolean+"=false", "-p", "1") != 1 {
			t.Errorf("--%s takes an argument", boolean)
		}
	}
	for _, valued := range []string{
		"iptables-probe-port", "probe-timeout", "network-namespace", "force-iptables-binary",
		"log_output_level", "log_target",
		"log_stacktrace_level", "log_caller",
	} {
		if read("--"+valued, "-p", "1") != 15001 || read("--"+valued+"=x", "-p", "1") != 1 {
			t.Errorf("--%s does not take its argument", valued)
		}
	}
}

func TestArgumentsWithoutTheirValueAreFaults(t *testing.T) {
	for args, want := range map[string]string{
		"-p":                `argument --envoy-port of container istio-validation: "" is not allowed: want a value`,
		"-z 2 --envoy-port": `argument --envoy-port of container istio-validation: "" is not allowed: want a value`,
		"-p -z":             `argument --envoy-port (-p) of container istio-validation: "-z" is not allowed: want a port from 1 to 65535`,
		"-p=":               `argument --envoy-port (-p) of container istio-validation: "" is not allowed: want a port from 1 to 65535`,
		"--redirect-dns=x":  `argument --redirect-dns of container istio-validation: "x" is not allowed: want true or false`,
	} {
		pod := meshPod()
		pod.Spec.InitContainers[0].Args = strings.Fields(args)
		_, _, err := decide.Parameters(pod, ipv4, &decide.Settings{})
		if err == nil || err.Error() != want {
			t.Errorf("%s: %v, want %s", args, err, want)
		}
	}
}

func TestBooleanArgumentsTakePrecedenceOverVariables(t *testing.T) {
	pod := meshPod()
	pod.Spec.InitContainers[0].Args = []string{
		"--redirect-dns", "--drop-invalid=false", "--dual-stack",
	}
	setVariable(&pod.Spec.Containers[1], "DROP_INVALID", "true")
	r, _, err := decide.Parameters(pod, addresses("10.0.0.5", "fd00::5"), &decide.Settings{})
	if err != nil || !r.DNS.Capture || !r.DNS.All || r.DropInvalid || !r.IPv6 {
		t.Errorf("redirection %+v, error %v; want DNS and IPv6 captured, and no dropped packets", r, err)
	}
}
