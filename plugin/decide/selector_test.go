package decide_test

import (
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/sluice-mesh/sluice/plugin/decide"
)

func TestLabelSelectors(t *testing.T) {
	labels := map[string]string{"app": "web", "tier": "front", "empty": ""}
	for _, test := range []struct {
		name, selector string
		want           bool
	}{
		{"a selector without conditions matches everything", `{}`, true},
		{"a label with the value", `{"matchLabels":{"app":"web"}}`, true},
		{"a label with another value", `{"matchLabels":{"app":"api"}}`, false},
		{"a missing label is not an empty one", `{"matchLabels":{"missing":""}}`, false},
		{"an empty label", `{"matchLabels":{"empty":""}}`, true},
		{"all labels must match", `{"matchLabels":{"app":"web","tier":"back"}}`, false},
		{
			"In matches one of the values",
			`{"matchExpressions":[{"key":"app","operator":"In","values":["api","web"]}]}`, true,
		},
		{
			"In does not match other values",
			`{"matchExpressions":[{"key":"app","operator":"In","values":["api"]}]}`, false,
		},
		{
			"In does not match without the label",
			`{"matchExpressions":[{"key":"missing","operator":"In","values":[""]}]}`, false,
		},
		{
			"NotIn matches other values",
			`{"matchExpressions":[{"key":"app","operator":"NotIn","values":["api"]}]}`, true,
		},
		{
			"NotIn does not match one of the values",
			`{"matchExpressions":[{"key":"app","operator":"NotIn","values":["web"]}]}`, false,
		},
		{
			"NotIn matches without the label",
			`{"matchExpressions":[{"key":"missing","operator":"NotIn","values":["x"]}]}`, true,
		},
		{"Exists matches an empty label", `{"matchExpressions":[{"key":"empty","operator":"Exists"}]}`, true},
		{
			"Exists does not match without the label",
			`{"matchExpressions":[{"key":"missing","operator":"Exists"}]}`, false,
		},
		{
			"DoesNotExist matches without the label", `{"matchExpressions":[{"key":"missing","operator":"DoesNotExist"}]}`,
			true,
		},
		{
			"DoesNotExist does not match with the label",
			`{"matchExpressions":[{"key":"empty","operator":"DoesNotExist"}]}`, false,
		},
		{
			"all expressions and labels must match",
			`{"matchLabels":{"app":"web"},"matchExpressions":[{"key":"tier","operator":"In","values":["back"]}]}`, false,
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			var selector decide.LabelSelector
			if err := json.Unmarshal([]byte(test.selector), &selector); err != nil {
				t.Fatal(err)
			}
			if err := selector.Validate(); err != nil {
				t.Errorf("a valid selector is rejected: %v", err)
			}
			if got := selector.Matches(labels); got != test.want {
				t.Errorf("matches: %v, want %v", got, test.want)
			}
		})
	}
	if none := (*decide.LabelSelector)(nil); !none.Matches(labels) {
		t.Error("a missing selector must match everything")
	}
}

func TestInvalidLabelSelectorsAreRejected(t *testing.T) {
	for _, test := range []struct{ selector, want string }{
		{
			`{"podSelector":{"matchExpressions":[{"key":"a","operator":"in","values":["b"]}]}}`,
			`podSelector: matchExpressions[0]: operator: "in"`,
		},
		{
			`{"podSelector":{"matchExpressions":[{"key":"a","operator":"In"}]}}`,
			"In requires at least one",
		},
		{
			`{"namespaceSelector":{"matchExpressions":[{"key":"a","operator":"NotIn"}]}}`,
			"namespaceSelector: matchExpressions[0]: values",
		},
		{
			`{"podSelector":{"matchExpressions":[{"key":"a","operator":"Exists","values":["b"]}]}}`,
			"Exists does not allow any",
		},
		{
			`{"podSelector":{"matchExpressions":[{"operator":"Exists"}]}}`,
			`key: "" is not allowed: want the key of a label, such as app or example.com/app`,
		},
		{
			`{"podSelector":{"matchLabels":{"a b":"c"}}}`,
			`podSelector: matchLabels["a b"]: key: "a b" is not allowed`,
		},
		{
			`{"podSelector":{"matchLabels":{"a":"b "}}}`,
			`podSelector: matchLabels["a"]: value: "b " is not allowed: want at most 63 letters`,
		},
		{
			`{"podSelector":{"matchExpressions":[{"key":"a","operator":"In","values":["b","c/d"]}]}}`,
			`podSelector: matchExpressions[0]: value: "c/d" is not allowed`,
		},
		{
			`{"podSelector":{"matchExpressions":[{"key":"a","operator":"Exists"},{"key":"b"}]}}`,
			"matchExpressions[1]",
		},
		{
			`{"podSelector":{"matchExpressions":[{}]},"namespaceSelector":{"matchExpressions":[{}]}}`,
			"\nnamespaceSelector",
		},
	} {
		var s decide.Selector
		if err := json.Unmarshal([]byte(test.selector), &s); err != nil {
			t.Fatal(err)
		}
		err := s.Validate()
		if err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %v, want %q", test.selector, err, test.want)
		}
		if strings.Contains(test.selector, `"operator":"in"`) &&
			s.Pods.Matches(map[string]string{"a": "b"}) {
			t.Errorf("%s: a condition with an unknown operator matches", test.selector)
		}
	}
}

// TestLabelsAreValidatedAsInKubernetes compares the validation with the validation of Kubernetes.
func TestLabelsAreValidatedAsInKubernetes(t *testing.T) {
	long := strings.Repeat("a", 63)
	for _, text := range []string{
		"", "a", "A", "0", "a-b", "a_b", "a.b", "-a", "a-", ".a", "a.", "_a", "a b", "a/b", "A/b",
		"a.b/c", "a..b/c", "a-/b", "-a/b", "a/", "/a", "a/b/c", "é", "a\x00", " a", "a_b/c", "a/B_c",
		long, long + "a", long + "/a", "a/" + long, "a/" + long + "a",
		strings.Repeat("a.", 126) + "a/b", strings.Repeat("a.", 126) + "aa/b",
	} {
		byKey := decide.Selector{Pods: &decide.LabelSelector{
			MatchExpressions: []decide.LabelRequirement{{Key: text, Operator: decide.LabelExists}},
		}}
		if got, want := byKey.Validate() == nil, len(validation.IsQualifiedName(text)) == 0; got != want {
			t.Errorf("key %q: valid %t, want %t", text, got, want)
		}
		byValue := decide.Selector{Pods: &decide.LabelSelector{MatchLabels: map[string]string{"a": text}}}
		if got, want := byValue.Validate() == nil, len(validation.IsValidLabelValue(text)) == 0; got != want {
			t.Errorf("value %q: valid %t, want %t", text, got, want)
		}
	}
}

func TestSelectorsChooseAmongMeshPods(t *testing.T) {
	app := func(value string) *decide.LabelSelector {
		return &decide.LabelSelector{MatchLabels: map[string]string{"app": value}}
	}
	team := func(value string) *decide.LabelSelector {
		return &decide.LabelSelector{MatchLabels: map[string]string{"team": value}}
	}
	shop := &decide.Namespace{Metadata: decide.Metadata{Labels: map[string]string{"team": "shop"}}}
	for _, test := range []struct {
		name      string
		selectors []decide.Selector
		namespace *decide.Namespace
		reason    decide.Reason
	}{
		{"without selectors every pod is selected", nil, nil, decide.MeshPod},
		{"an empty selector selects every pod", []decide.Selector{{}}, nil, decide.MeshPod},
		{"the pod's labels match", []decide.Selector{{Pods: app("cart")}}, nil, decide.MeshPod},
		{
			"the pod's labels do not match",
			[]decide.Selector{{Pods: app("web")}},
			nil,
			decide.NotSelected,
		},
		{
			"one of several matches",
			[]decide.Selector{{Pods: app("web")}, {Pods: app("cart")}},
			nil, decide.MeshPod,
		},
		{
			"the namespace's labels match",
			[]decide.Selector{{Namespaces: team("shop")}},
			shop,
			decide.MeshPod,
		},
		{
			"the namespace's labels do not match",
			[]decide.Selector{{Namespaces: team("bank")}},
			shop, decide.NotSelected,
		},
		{
			"the labels of the pod and of the namespace must match",
			[]decide.Selector{{Pods: app("web"), Namespaces: team("shop")}},
			shop, decide.NotSelected,
		},
		{
			"the namespace is needed",
			[]decide.Selector{{Namespaces: team("shop")}},
			nil,
			decide.NamespaceUnknown,
		},
		{
			"the namespace is not needed if the pod's labels decide",
			[]decide.Selector{{Pods: app("web"), Namespaces: team("shop")}},
			nil,
			decide.NotSelected,
		},
		{
			"the namespace is not needed if another selector decides",
			[]decide.Selector{{Namespaces: team("shop")}, {Pods: app("cart")}},
			nil, decide.MeshPod,
		},
		{
			"a namespace without labels",
			[]decide.Selector{{Namespaces: team("shop")}},
			&decide.Namespace{}, decide.NotSelected,
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			pod := readPod(t, "native-sidecar")
			in := decide.Input{Attachment: attachment(pod), Pod: pod, Namespace: test.namespace}
			got := decide.Decide(in, &decide.Settings{Selectors: test.selectors})
			if got.Reason != test.reason {
				t.Errorf("decision %v, want the reason %s", got, test.reason)
			}
			if (got.Outcome == decide.Undecided) != (test.reason == decide.NamespaceUnknown) {
				t.Errorf("decision %v, want undecided only for the reason %s", got, decide.NamespaceUnknown)
			}
		})
	}
}

// TestNamespaceIsRequestedOnlyIfNeeded checks that the namespace is fetched only if the decision
// depends on it, and that an error of the request is returned.
func TestNamespaceIsRequestedOnlyIfNeeded(t *testing.T) {
	pod := readPod(t, "native-sidecar")
	in := decide.Input{Attachment: attachment(pod), Pod: pod}
	team := &decide.LabelSelector{MatchLabels: map[string]string{"team": "shop"}}
	missing := errors.New("not found")
	for _, test := range []struct {
		name      string
		selectors []decide.Selector
		err       error
		fetched   []string
		reason    decide.Reason
	}{
		{"the namespace is not needed", nil, missing, nil, decide.MeshPod},
		{
			"the namespace matches",
			[]decide.Selector{{Namespaces: team}},
			nil,
			[]string{in.Attachment.Namespace},
			decide.MeshPod,
		},
		{
			"the request fails",
			[]decide.Selector{{Namespaces: team}},
			missing,
			[]string{in.Attachment.Namespace},
			decide.NamespaceUnknown,
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			var fetched []string
			d, err := decide.WithNamespace(in, &decide.Settings{Selectors: test.selectors},
				func(name string) (*decide.Namespace, error) {
					fetched = append(fetched, name)
					return &decide.Namespace{Metadata: decide.Metadata{Labels: team.MatchLabels}},
						test.err
				})
			if d.Reason != test.reason || !slices.Equal(fetched, test.fetched) {
				t.Errorf("decision %v, fetched %q; want the reason %s and %q", d, fetched,
					test.reason, test.fetched)
			}
			if wantErr := test.reason == decide.NamespaceUnknown; wantErr != errors.Is(err, missing) {
				t.Errorf("error %v, want the error of the request: %v", err, wantErr)
			}
		})
	}
}

func TestNamespaceOfASkippedPodIsNotRequested(t *testing.T) {
	s := decide.Settings{
		Selectors: []decide.Selector{
			{Namespaces: &decide.LabelSelector{MatchLabels: map[string]string{"a": "b"}}},
		},
	}
	for _, name := range podNames(t) {
		pod := readPod(t, name)
		in := decide.Input{Attachment: attachment(pod), Pod: pod}
		if without := decide.Decide(in, &decide.Settings{}); without.Outcome == decide.Skip {
			if got := decide.Decide(in, &s); got != without {
				t.Errorf("%s: decision with a selector: %v, want %v as without", name, got, without)
			}
		}
	}
}
