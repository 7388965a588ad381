package decide_test

import (
	"bytes"
	"encoding/json"
	"testing"

	"github.com/sluice-mesh/sluice/plugin/decide"
)

// BenchmarkPod measures the steps from the API server's reply to the parameters. The pod is padded
// to 20 kB, the size of a pod with more containers, volumes and managed fields.
func BenchmarkPod(b *testing.B) {
	data := podJSON(b, "annotations")
	padding, err := json.Marshal(map[string]any{
		"f:metadata": map[string]string{"f:labels": string(bytes.Repeat([]byte("x"), 80))},
	})
	if err != nil {
		b.Fatal(err)
	}
	fields := bytes.Repeat(append(padding, ','), (20_000-len(data))/(len(padding)+1)+1)
	data = bytes.Replace(data, []byte(`{`),
		append(append([]byte(`{"managedFields":[`), fields[:len(fields)-1]...), "],"...), 1)
	if len(data) < 20_000 {
		b.Fatalf("the pod has %d bytes, want at least 20000", len(data))
	}
	b.SetBytes(int64(len(data)))
	b.ReportAllocs()
	for b.Loop() {
		var pod decide.Pod
		if err := json.Unmarshal(data, &pod); err != nil {
			b.Fatal(err)
		}
		if d := decide.Decide(decide.Input{Attachment: attachment(&pod), Pod: &pod},
			&settings); d.Outcome != decide.Redirect {
			b.Fatal(d)
		}
		if _, _, err := decide.Parameters(&pod, ipv4, &settings); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkDecision measures the same steps without decoding the pod.
func BenchmarkDecision(b *testing.B) {
	pod := readPod(b, "annotations")
	b.ReportAllocs()
	for b.Loop() {
		if d := decide.Decide(decide.Input{Attachment: attachment(pod), Pod: pod},
			&settings); d.Outcome != decide.Redirect {
			b.Fatal(d)
		}
		if _, _, err := decide.Parameters(pod, ipv4, &settings); err != nil {
			b.Fatal(err)
		}
	}
}
