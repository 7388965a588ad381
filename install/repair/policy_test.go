package repair_test

import (
	"strings"
	"testing"
	"time"

	"github.com/sluice-mesh/sluice/install/repair"
	"github.com/sluice-mesh/sluice/install/serve/podcache"
	"github.com/sluice-mesh/sluice/install/settings"
	"github.com/sluice-mesh/sluice/plugin/decide"
	"github.com/sluice-mesh/sluice/plugin/source"
)

// policy returns the policy of an environment, given as words NAME=value; an underscore in
// a value represents a space.
func policy(t *testing.T, env string) (repair.Policy, error) {
	t.Helper()
	set := map[string]string{"NODE_NAME": "node-1", "POD_NAME": "agent", "POD_NAMESPACE": "system"}
	for word := range strings.FieldsSeq(env) {
		name, value, _ := strings.Cut(word, "=")
		set[name] = strings.ReplaceAll(value, "_", " ")
	}
	v, err := settings.Read(func(name string) (string, bool) {
		value, ok := set[name]
		return value, ok
	})
	if err != nil {
		t.Fatal(err)
	}
	return repair.New(v)
}

func mustPolicy(t *testing.T, env string) repair.Policy {
	t.Helper()
	p, err := policy(t, env)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

var noon = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)

// broken returns a pod that istio-cni considers broken by default.
func broken() repair.Pod {
	return repair.Pod{
		Item: podcache.Item{
			Ref: source.Ref{Namespace: "shop", Name: "web", UID: "1"},
			PodStatus: podcache.PodStatus{
				Phase: "Pending", RestartPolicy: "Always",
				Init: []podcache.InitContainer{
					{
						Name: "istio-validation",
						Last: &podcache.Termination{
							ExitCode: 126, Message: " no redirect\n", Started: noon,
						},
					},
				},
			},
		},
		Pod: &decide.Pod{Metadata: decide.Metadata{
			Annotations: map[string]string{"sidecar.istio.io/status": "{}"},
			Labels:      map[string]string{"tier": "web"},
		}},
		Node: "node-1",
	}
}

// TestBroken covers Istio's condition for a broken pod, with each of its settings.
func TestBroken(t *testing.T) {
	validation := func(p *repair.Pod) *podcache.InitContainer { return &p.PodStatus.Init[0] }
	for _, row := range []struct {
		name   string
		env    string
		change func(*repair.Pod)
		since  time.Time
		want   bool
	}{
		{"the validation has failed", "", nil, time.Time{}, true},
		{"the validation has succeeded after the failure", "", func(p *repair.Pod) {
			validation(p).Succeeded = true
		}, time.Time{}, false},
		{"no init container has ended", "", func(p *repair.Pod) {
			p.PodStatus.Init = nil
		}, time.Time{}, false},
		{"no earlier run has ended", "", func(p *repair.Pod) {
			validation(p).Last = nil
		}, time.Time{}, false},
		{"another init container has failed", "", func(p *repair.Pod) {
			validation(p).Name = "migrate"
		}, time.Time{}, false},
		{"the container with the configured name has failed", "REPAIR_INIT_CONTAINER_NAME=check", func(p *repair.Pod) {
			validation(p).Name = "check"
		}, time.Time{}, true},
		{"the validation has failed with another exit code", "", func(p *repair.Pod) {
			validation(p).Last.ExitCode = 1
		}, time.Time{}, false},
		{"any exit code is configured", "REPAIR_INIT_CONTAINER_EXIT_CODE=0", func(p *repair.Pod) {
			validation(p).Last.ExitCode = 1
		}, time.Time{}, true},
		{
			"the trimmed message equals the configured one", "REPAIR_INIT_CONTAINER_TERMINATION_MESSAGE=no_redirect", nil,
			time.Time{},
			true,
		},
		{
			"the message differs from the configured one", "REPAIR_INIT_CONTAINER_TERMINATION_MESSAGE=no", nil,
			time.Time{},
			false,
		},
		{"the failed run began at the given time", "", nil, noon, true},
		{"the failed run began before the given time", "", nil, noon.Add(time.Second), false},
	} {
		t.Run(row.name, func(t *testing.T) {
			p, pod := mustPolicy(t, row.env), broken()
			if row.change != nil {
				row.change(&pod)
			}
			if got := p.IsBroken(pod.PodStatus, row.since); got != row.want {
				t.Errorf("broken: %v, want %v", got, row.want)
			}
		})
	}
}

func TestSelects(t *testing.T) {
	for env, want := range map[string]bool{
		"":                                            true,
		"REPAIR_SIDECAR_ANNOTATION=mesh/status":       false,
		"REPAIR_LABEL_SELECTORS=tier=web":             true,
		"REPAIR_LABEL_SELECTORS=tier!=web":            false,
		"REPAIR_LABEL_SELECTORS=tier_in_(web,db)":     true,
		"REPAIR_FIELD_SELECTORS=metadata.name=web":    true,
		"REPAIR_FIELD_SELECTORS=metadata.name!=web":   false,
		"REPAIR_FIELD_SELECTORS=spec.nodeName=node-1": true,
		"REPAIR_FIELD_SELECTORS=metadata.namespace=shop,status.phase!=Running,spec.hostNetwork=false": true,
		"REPAIR_FIELD_SELECTORS=spec.restartPolicy=Never":                                             false,
	} {
		p := mustPolicy(t, env)
		if got := p.Selects(broken()); got != want {
			t.Errorf("%s: selects %v, want %v", env, got, want)
		}
	}
}

// TestActionsHaveIstiosDefaultsAndPrecedence checks the actions: the defaults equal the defaults of
// istio-cni's chart, and deletion takes precedence over labeling, which is done once.
func TestActionsHaveIstiosDefaultsAndPrecedence(t *testing.T) {
	pod, labeled := broken(), broken()
	labeled.Metadata.Labels = map[string]string{"cni.istio.io/uninitialized": "whatever"}
	for _, row := range []struct {
		env               string
		enabled, inPlace  bool
		action, ifLabeled repair.Action
	}{
		{"", true, true, "", ""},
		{
			"REPAIR_ENABLED=false REPAIR_DELETE_PODS=true REPAIR_LABEL_PODS=true", false, false, "",
			"",
		},
		{"REPAIR_REPAIR_PODS=false", false, false, "", ""},
		{"REPAIR_REPAIR_PODS=false REPAIR_LABEL_PODS=true", true, false, repair.Label, ""},
		{
			"REPAIR_DELETE_PODS=true REPAIR_LABEL_PODS=true", true, true, repair.Delete,
			repair.Delete,
		},
	} {
		p := mustPolicy(t, row.env)
		if p.IsEnabled() != row.enabled || p.InPlace != row.inPlace || p.Fallback(pod) != row.action ||
			p.Fallback(labeled) != row.ifLabeled {
			t.Errorf("%s: enabled %v, in place %v, fallback %q, fallback for a labeled pod %q, want %+v",
				row.env, p.IsEnabled(), p.InPlace, p.Fallback(pod), p.Fallback(labeled), row)
		}
	}
	if p := mustPolicy(t, ""); p.LabelKey != "cni.istio.io/uninitialized" || p.LabelValue != "true" {
		t.Errorf("default label %s=%s, want Istio's", p.LabelKey, p.LabelValue)
	}
}
