package apiservertest_test

import (
	"testing"

	"github.com/sluice-mesh/sluice/plugin/apiservertest"
)

func TestRequestKind(t *testing.T) {
	for want, r := range map[string]apiservertest.Request{
		"list pods":      {Method: "GET", Path: "/api/v1/pods"},
		"watch pods":     {Method: "GET", Path: "/api/v1/pods", Watch: true},
		"get pods":       {Method: "GET", Path: "/api/v1/namespaces/default/pods/web"},
		"get nodes":      {Method: "GET", Path: "/api/v1/nodes/node-1"},
		"patch nodes":    {Method: "PATCH", Path: "/api/v1/nodes/node-1"},
		"get namespaces": {Method: "GET", Path: "/api/v1/namespaces/default"},
		"patch pods/status": {
			Method: "PATCH", Path: "/api/v1/namespaces/default/pods/web/status",
		},
		"list daemonsets": {Method: "GET", Path: "/apis/apps/v1/namespaces/a/daemonsets"},
		"get daemonsets":  {Method: "GET", Path: "/apis/apps/v1/namespaces/a/daemonsets/b"},
		"create events":   {Method: "POST", Path: "/api/v1/namespaces/default/events"},
		"create serviceaccounts/token": {
			Method: "POST", Path: "/api/v1/namespaces/a/serviceaccounts/b/token",
		},
	} {
		if got := r.Kind(); got != want {
			t.Errorf("%s %s is %q, want %q", r.Method, r.Path, got, want)
		}
	}
}
