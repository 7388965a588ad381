package decide_test

import (
	"encoding/json"
	"testing"

	"github.com/sluice-mesh/sluice/plugin/decide"
)

func TestPodHasUID(t *testing.T) {
	pod := decide.Pod{Metadata: decide.Metadata{
		UID: "a", Annotations: map[string]string{"kubernetes.io/config.mirror": "b"},
	}}
	for _, test := range []struct {
		name, uid string
		want      bool
	}{
		{"the pod's UID", "a", true},
		{"the hash of a static pod's configuration", "b", true},
		{"the UID of another pod", "c", false},
		{"an empty UID", "", false},
	} {
		if got := pod.HasUID(test.uid); got != test.want {
			t.Errorf("%s: %v, want %v", test.name, got, test.want)
		}
	}
	if none := (&decide.Pod{}); none.HasUID("") {
		t.Error("a pod without a UID has the empty UID, want false")
	}
}

func TestAddressesOfTheStatus(t *testing.T) {
	for _, test := range []struct{ name, status, want string }{
		{"no address yet", `{}`, `null`},
		{"one address", `{"podIP":"10.0.0.5","podIPs":[{"ip":"10.0.0.5"}]}`, `["10.0.0.5"]`},
		{"a status of an old API server", `{"podIP":"10.0.0.5"}`, `["10.0.0.5"]`},
		{
			"addresses of both families in order",
			`{"podIP":"fd00::5","podIPs":[{"ip":"fd00::5"},{"ip":"10.0.0.5"}]}`,
			`["fd00::5","10.0.0.5"]`,
		},
		{
			"invalid addresses are omitted", `{"podIP":"x","podIPs":[{"ip":"10.0.0.5"},{}]}`,
			`["10.0.0.5"]`,
		},
	} {
		var pod decide.Pod
		if err := json.Unmarshal([]byte(`{"status":`+test.status+`}`), &pod); err != nil {
			t.Fatal(err)
		}
		if got, err := json.Marshal(pod.Addresses()); err != nil || string(got) != test.want {
			t.Errorf("%s: %s, error %v, want %s", test.name, got, err, test.want)
		}
	}
}
