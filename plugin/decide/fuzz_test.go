package decide_test

import (
	"encoding/json"
	"errors"
	"net/netip"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/sluice-mesh/sluice/plugin/decide"
	"github.com/sluice-mesh/sluice/rules"
)

// checkPod decides on a pod and computes its parameters. It fails the test unless parameters
// without an error are valid, compile and are reproducible, and each error and note is a short
// line.
func checkPod(t rapid.TB, pod *decide.Pod, addresses []netip.Addr) {
	s := decide.Settings{
		AgentNamespace: "sluice-system", AgentDaemonSet: "sluice-node",
		ExcludeNamespaces: []string{"kube-system"},
	}
	in := decide.Input{Attachment: attachment(pod), Pod: pod}
	decision := decide.Decide(in, &s)
	checkLine(t, decision.String())
	in.Annotations = pod.Metadata.Annotations
	if early := decide.Early(in.Attachment, &s); early.Outcome == decide.Skip &&
		decide.Decide(in, &s).Outcome != decide.Skip {
		t.Fatalf("early decision %v, final decision %v, want skip", early, decision)
	}
	r, notes, err := decide.Parameters(pod, addresses, &s)
	for _, n := range notes {
		checkLine(t, n.String())
	}
	if err != nil {
		var faults rules.Faults
		if !errors.As(err, &faults) || len(faults) == 0 {
			t.Fatalf("an error without faults: %v", err)
		}
		for _, f := range faults {
			checkLine(t, f.String())
		}
		return
	}
	if err := r.Validate(); err != nil {
		t.Fatalf("a redirection that is not valid: %v", err)
	}
	second, _, err := decide.Parameters(pod, addresses, &s)
	if d := diff(r, second); d != "" || err != nil {
		t.Fatalf("the second call returns another redirection (-first +second), error %v:\n%s", err, d)
	}
	if !rules.Equal(rules.MustCompile(r), rules.MustCompile(second)) {
		t.Fatal("equal parameters give different rulesets")
	}
}

func checkLine(t rapid.TB, line string) {
	if len(line) > 4096 || strings.ContainsFunc(line, func(c rune) bool {
		return c < ' ' || c == 0x7f
	}) {
		t.Fatalf("the text is not a short line: %d bytes: %.500q", len(line), line)
	}
}

func FuzzPod(f *testing.F) {
	for _, name := range podNames(f) {
		// Use only the fields that are read: the fuzzer takes minutes to minimize a long input.
		data, err := json.Marshal(readPod(f, name))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data, "10.244.1.7 fd00::7")
	}
	f.Add([]byte(`{"metadata":{"labels":null},"spec":{"initContainers":[null],"containers":[{"name":"istio-proxy","env":[null]}]}}`), "")
	f.Fuzz(func(t *testing.T, data []byte, texts string) {
		var pod decide.Pod
		if json.Unmarshal(data, &pod) != nil {
			return
		}
		var found []netip.Addr
		for text := range strings.FieldsSeq(texts) {
			if a, err := netip.ParseAddr(text); err == nil {
				found = append(found, a)
			}
		}
		checkPod(t, &pod, found)
	})
}

// FuzzValue puts one hostile value into a place that is read. Mutations of a whole pod rarely reach
// such a place.
func FuzzValue(f *testing.F) {
	for _, value := range []string{
		"*", "", "80", "80,443", "80-90", "0x539", "1337", "10.0.0.0/8", "::ffff:10.0.0.0/104",
		"eth0", "NONE", "TPROXY", "true",
		"-", "--", "$(id)", "../../etc/passwd", "\x00", "\u202e", "1338", "254", "4294967295",
		"1-0", ",", "*,*", "127.0.0.0/7", "fe80::1%e/64",
	} {
		for i := range parameterPlaces {
			f.Add(value, uint16(i), true)
		}
	}
	f.Fuzz(func(t *testing.T, value string, which uint16, tproxy bool) {
		all := parameterPlaces[int(which)%len(parameterPlaces)].places
		pod := meshPod()
		if tproxy {
			pod.Metadata.Annotations["sidecar.istio.io/interceptionMode"] = "TPROXY"
		}
		all[int(which)/len(parameterPlaces)%len(all)].set(pod, value)
		checkPod(t, pod, ipv4)
		pod.Spec.InitContainers[0].Args = append(pod.Spec.InitContainers[0].Args,
			strings.Fields(value)...)
		pod.Spec.InitContainers = append(pod.Spec.InitContainers, decide.Container{Name: value})
		checkPod(t, pod, ipv4)
		pod.Spec.Containers[1].Args = []string{"proxy", value}
		pod.Metadata.Labels = map[string]string{"sidecar.istio.io/inject": value}
		checkPod(t, pod, ipv4)
	})
}

// TestAnyMixtureGivesValidParametersOrFaults sets up to eight parameters of a pod, each in any
// place.
func TestAnyMixtureGivesValidParametersOrFaults(t *testing.T) {
	text := rapid.OneOf(
		rapid.SampledFrom([]string{
			"*", "", "80", "80,443", "TPROXY", "REDIRECT", "true", "0", "10.0.0.0/8", "eth0",
			"1338", "254",
		}),
		rapid.StringMatching(`[0-9a-f:./,*-]{0,20}`),
		rapid.String(),
	)
	rapid.Check(t, func(t *rapid.T) {
		pod := meshPod()
		for range rapid.IntRange(0, 8).Draw(t, "number") {
			all := rapid.SampledFrom(parameterPlaces).Draw(t, "parameter").places
			rapid.SampledFrom(all).Draw(t, "place").set(pod, text.Draw(t, "text"))
		}
		checkPod(t, pod, addresses("10.0.0.5", "fd00::5"))
	})
}
