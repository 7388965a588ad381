package main

import (
	"slices"
	"strings"
	"testing"
)

func TestCompletion(t *testing.T) {
	kinds := func(prefix string) []string {
		var words []string
		for _, kind := range []string{
			"cronjob", "daemonset", "deployment", "job", "pod", "replicaset", "statefulset",
		} {
			words = append(words, prefix+kind+"/")
		}
		return words
	}
	namespaces := []string{"default", "istio-system", "shop"}
	all := slices.Concat([]string{"alone", "default/", "istio-system/", "shop/"}, kinds(""))
	inShop := []string{"web-1", "web-2", "far", "nightly-1-x"}
	labels := []string{
		"app=web", "batch.kubernetes.io/job-name=nightly-1",
	}
	for _, c := range []struct {
		name string
		args []string
		want []string
	}{
		{"pods, namespaces and kinds", []string{"check", ""}, all},
		{"pods, namespaces and kinds for status", []string{"status", ""}, all},
		{
			"pods of a namespace",
			[]string{"check", "shop/"},
			slices.Concat(
				[]string{"shop/web-1", "shop/web-2", "shop/far", "shop/nightly-1-x"}, kinds("shop/")),
		},
		{
			"pods of the namespace of a flag",
			[]string{"trace", "-n", "shop", ""},
			slices.Concat(inShop, all[1:]),
		},
		{
			"pods of the namespace of a flag of status",
			[]string{"status", "-n", "shop", ""},
			slices.Concat(inShop, all[1:]),
		},
		{"deployments", []string{"check", "-n", "shop", "deployment/"}, []string{"deployment/web"}},
		{"deployments by their short name", []string{"check", "-n", "shop", "deploy/"}, []string{"deploy/web"}},
		{"deployments of a namespace", []string{"show", "shop/deploy/"}, []string{"shop/deploy/web"}},
		{"jobs", []string{"check", "-n", "shop", "job/"}, []string{"job/nightly-1"}},
		{"cron jobs of a namespace", []string{"check", "shop/cj/"}, []string{"shop/cj/nightly"}},
		{"a namespace without deployments", []string{"check", "deployment/"}, nil},
		{"the value of --namespace", []string{"check", "--namespace", ""}, namespaces},
		{"the value of -n", []string{"check", "-n", ""}, namespaces},
		{"the value of -n of status", []string{"status", "-n", ""}, namespaces},
		{"the value of -n after the pod", []string{"check", "web-1", "-n", ""}, namespaces},
		{"a label selector", []string{"check", "-n", "shop", "-l", ""}, labels},
		{"a label selector of status", []string{"status", "-n", "shop", "--selector", ""}, labels},
		{
			"the second label of a selector",
			[]string{"check", "-n", "shop", "-l", "app=web,"},
			[]string{"app=web,app=web", "app=web,batch.kubernetes.io/job-name=nightly-1"},
		},
		{"nothing after a selector", []string{"check", "-l", "app=web", ""}, nil},
		{"nothing after the pod", []string{"check", "shop/web-1", ""}, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			code, stdout, stderr := newFakeCluster().sluice(t.Context(), t, nil,
				append([]string{"__complete"}, c.args...)...)
			words := strings.Split(strings.TrimSpace(stdout), "\n")
			words = words[:len(words)-1] // the directive
			if code != 0 || !slices.Equal(words, c.want) {
				t.Errorf("exit code %d, words %q; want 0 and %q\n%s", code, words, c.want, stderr)
			}
		})
	}
}
