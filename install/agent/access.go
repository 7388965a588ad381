package agent

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/sluice-mesh/sluice/install/agent/observe"
	"github.com/sluice-mesh/sluice/install/apiclient"
	"github.com/sluice-mesh/sluice/install/token"
	"github.com/sluice-mesh/sluice/plugin/config"
	"github.com/sluice-mesh/sluice/plugin/decide"
)

// kubeconfigCheckInterval is the interval for checks of the plugin's kubeconfig if the agent does
// not serve the socket. Readiness then follows the API server within about a minute, and 10,000
// nodes make 330 connections per second. If the agent serves the socket, the plugin can read pods
// without the API server, and the longer default interval of package token applies.
const kubeconfigCheckInterval = 30 * time.Second

// tokenOptions returns the options for the plugin's kubeconfig.
func tokenOptions(o Options, c *config.Config, changed func(token.Status)) token.Options {
	v := o.Settings
	t := token.Options{
		Kubeconfig: c.Kubeconfig, Mode: fs.FileMode(v.Mode("KUBECONFIG_MODE")),
		Options: apiclient.Options{
			Server: o.API.Server, CAFile: cmp.Or(v.Text("KUBE_CA_FILE"), o.API.CAFile),
			SkipTLSVerify: v.Bool("SKIP_TLS_VERIFY"),
			TokenFile:     o.API.TokenFile, UserAgent: o.API.UserAgent,
		},
		Namespaces: readsNamespaces(&c.Decide),
		Changed:    changed,
	}
	if !v.Bool("SLUICE_SERVE") {
		t.CheckInterval = kubeconfigCheckInterval
	}
	return t
}

// readsNamespaces reports whether decisions need the labels of namespaces.
func readsNamespaces(s *decide.Settings) bool {
	selectors := s.Selectors
	if s.Ambient != nil {
		selectors = slices.Concat(selectors, s.Ambient.Selectors)
	}
	return slices.ContainsFunc(selectors, func(s decide.Selector) bool { return s.Namespaces != nil })
}

// checkInsertable returns an error if the plugin must not be inserted into the node's CNI chain
// yet, because its ADD would fail.
func (a *Agent) checkInsertable() error {
	if k := a.kernel.result(); !k.Ready {
		return fmt.Errorf("the kernel is not ready: %s", k.Reasons[0])
	}
	s := a.publisher.Status()
	if s.Usable(time.Now()) || a.socketReady() {
		return nil
	}
	for _, err := range []error{s.Forbidden, s.Problem, s.Unavailable} {
		if err != nil {
			return fmt.Errorf("the plugin cannot read pods: %w", err)
		}
	}
	return errors.New("the plugin cannot read pods: the API server has not replied yet")
}

// socketReady reports whether the plugin can read pods through the socket. During an outage of the
// API server the cached pods suffice, because no pod is scheduled to the node meanwhile. They do
// not suffice if the API server does not permit the agent to watch pods, because new pods would be
// missing.
func (a *Agent) socketReady() bool {
	return a.server != nil && a.server.Listening() && a.podCache.Synced() &&
		a.podCache.Refused() == nil
}

// socketPart returns the part of readiness that reports whether the plugin can read pods through
// the socket.
func (a *Agent) socketPart() observe.Part {
	part := observe.Part{Name: observe.Socket, Ready: a.socketReady()}
	if !a.server.Listening() {
		part.Reasons = append(part.Reasons, "the plugin cannot reach the agent")
	}
	if !a.podCache.Synced() {
		part.Reasons = append(part.Reasons, "the node's pods have not been listed yet")
	}
	if refused := a.podCache.Refused(); refused != nil {
		part.Reasons = append(part.Reasons, "the agent cannot watch the node's pods: "+refused.Error())
	}
	return part
}

// kubeconfigPart returns the part of readiness that reports whether the plugin can read pods with
// the kubeconfig at path.
func kubeconfigPart(path string, s token.Status, now time.Time) observe.Part {
	part := observe.Part{Name: observe.Kubeconfig, Ready: s.Usable(now)}
	switch {
	case s.Origin == "":
		part.Reasons = []string{"no token has been written yet"}
	case s.Revoked:
		part.Reasons = []string{"the API server no longer accepts the token"}
	case !s.Expiry.IsZero():
		part.Reasons = []string{fmt.Sprintf("the token expires at %s",
			s.Expiry.UTC().Format(time.RFC3339))}
	}
	if s.Forbidden != nil {
		part.Reasons = append(part.Reasons,
			"the API server accepts the token, but a permission is missing")
	}
	if s.Unavailable != nil {
		since := s.UnavailableSince.UTC().Format(time.RFC3339)
		part.Reasons = append(part.Reasons,
			fmt.Sprintf("the API server has not replied since %s: %v", since, s.Unavailable))
	}
	if s.Problem != nil {
		part.Reasons = append(part.Reasons, s.Problem.Error())
	}
	if _, err := os.Stat(path); err != nil && s.Origin != "" {
		part.Fail(err.Error())
	}
	return part
}

// permissionsPart returns the part of readiness that reports whether the API server accepts the
// agent's credentials, and permits the plugin to read pods and the agent to watch them. Either
// permission to read pods suffices to redirect pods, but the node is not ready while one is
// missing, because only a person can grant it.
func (a *Agent) permissionsPart() observe.Part {
	part := observe.Part{Name: observe.Permissions, Reasons: a.missingPermissions()}
	part.Ready = len(part.Reasons) == 0
	// Before the first request it is unknown whether the agent may watch pods.
	if a.server != nil && !a.podCache.Requested() {
		part.Fail("the node's pods have not been requested yet")
	}
	// Before the first check of the kubeconfig it is unknown whether the plugin may read pods.
	if !a.publisher.Status().PermissionsKnown {
		part.Fail("the agent has not checked yet whether the plugin may read pods")
	}
	if s := a.credentials.Status(); s.Problem != nil {
		part.Fail(fmt.Sprintf("%v, since %s", s.Problem, s.Since.UTC().Format(time.RFC3339)))
	}
	return part
}

// missingPermissions returns a sentence for each missing permission of the plugin and the agent,
// with the API server's message, which names the verb and the resource.
func (a *Agent) missingPermissions() []string {
	var missing []string
	if err := a.publisher.Status().Forbidden; err != nil {
		missing = append(missing, "the plugin lacks a permission: "+err.Error())
	}
	if a.podCache == nil {
		return missing
	}
	if refused := a.podCache.Refused(); apierrors.IsForbidden(refused) {
		missing = append(missing, "the agent lacks a permission: "+refused.Error())
	}
	return missing
}
