package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/sluice-mesh/sluice/plugin/agent"
	"github.com/sluice-mesh/sluice/plugin/decide"
	"github.com/sluice-mesh/sluice/plugin/text"
	"github.com/sluice-mesh/sluice/rules"
)

// locateTimeout limits a request to the node agent. The agent's own limit is 2.5 s, so that the
// command receives the agent's error.
const locateTimeout = 3 * time.Second

// podName is the namespace and name of a pod, as in --pod.
type podName struct{ namespace, name string }

// String returns NAMESPACE/NAME.
func (n podName) String() string { return n.namespace + "/" + n.name }

// The maximum lengths of a pod's namespace and name (RFC 1123).
const (
	maxNamespaceLength = 63
	maxNameLength      = 253
)

// maxQuotedLength is the length to which errors shorten an invalid value.
const maxQuotedLength = 100

// parsePodName parses NAMESPACE/NAME.
func parsePodName(value string) (podName, error) {
	namespace, name, _ := strings.Cut(value, "/")
	isForbidden := func(c rune) bool {
		isAllowed := 'a' <= c && c <= 'z' || '0' <= c && c <= '9' || c == '-'
		return !isAllowed
	}
	isLabel := func(label string) bool {
		return label != "" && strings.Trim(label, "-") == label &&
			!strings.ContainsFunc(label, isForbidden)
	}
	ok := isLabel(namespace) && len(namespace) <= maxNamespaceLength && len(name) <= maxNameLength
	for label := range strings.SplitSeq(name, ".") {
		ok = ok && isLabel(label)
	}
	if !ok {
		return podName{}, fmt.Errorf("invalid pod %s: want NAMESPACE/NAME, such as default/web",
			text.Quote(value, maxQuotedLength))
	}
	return podName{namespace, name}, nil
}

// setPod sets the pod or the file of --pod. The value is a file if it is not the name of a pod, if
// the file exists, or if its extension is .yaml, .yml or .json. Only explain reads a file; see
// podFaults.
func (p *parameters) setPod(value string) error {
	if value == "" {
		return errors.New("empty: want NAMESPACE/NAME")
	}
	named, err := parsePodName(value)
	_, statErr := os.Stat(value)
	isFile := statErr == nil ||
		slices.Contains([]string{".yaml", ".yml", ".json"}, filepath.Ext(value))
	if err == nil && !isFile {
		p.pod = named
	} else {
		p.podFile = value
	}
	return nil
}

// setRunDir sets the directory of --cni-agent-run-dir.
func (p *parameters) setRunDir(path string) error {
	if !filepath.IsAbs(path) {
		return fmt.Errorf("%s is not an absolute path", text.Quote(path, maxQuotedLength))
	}
	p.runDir = path
	return nil
}

// podFaults returns the errors about parameters that are not allowed with --pod or --node. For a
// command that does not read files, it first changes the file of --pod to the name of a pod.
func (in *inputs) podFaults(p *parameters) []error {
	var errs []error
	if p.podFile != "" && !slices.Contains(in.sections, sectionExplain) {
		named, err := parsePodName(p.podFile)
		if err != nil {
			return []error{fmt.Errorf("--pod: %w", err)}
		}
		p.pod, p.podFile = named, ""
	}
	if p.node {
		for _, name := range in.givenIn(captureSectionsAnd(sectionNamespace, sectionAgent)) {
			errs = append(errs, fmt.Errorf("the node agent provides the node's rules: "+
				"--%s cannot be combined with --node", name))
		}
		return errs
	}
	if p.pod == (podName{}) {
		return nil
	}
	for _, name := range in.givenIn(captureSections) {
		errs = append(errs, fmt.Errorf("the node agent provides the parameters of the pod: "+
			"--%s cannot be combined with --pod", name))
	}
	for _, name := range in.givenIn([]section{sectionNamespace}) {
		errs = append(errs, fmt.Errorf("--pod and --%s: give only one of them", name))
	}
	return errs
}

// locate requests the pod's location from the node agent, and sets the parameters to the namespace
// and the redirection of the pod.
func (s *system) locate(p *parameters) error {
	ctx, cancel := context.WithTimeout(context.Background(), locateTimeout)
	defer cancel()
	found, err := agent.Caller{
		Socket: agent.SocketIn(p.runDir),
	}.Locate(ctx, p.pod.namespace, p.pod.name)
	switch {
	case agent.IsNotFound(err):
		return fmt.Errorf("pod %s is not on this node: %w", p.pod, err)
	case err != nil:
		return systemError(fmt.Errorf("pod %s: %w", p.pod, agentError(ctx, "--pod", err)))
	}
	p.located, p.netnsPath = found, found.NetNS
	if found.Orphaned {
		s.warn("the API server no longer has pod %s, but its sandbox exists; the agent's records "+
			"provide its parameters", p.pod)
	}
	switch {
	case found.Redirect != nil:
		p.Redirect = *found.Redirect
	case found.Ambient != nil:
		a := found.Ambient
		p.AmbientMode, p.Ambient = true, *a
		// The parameters that both redirections have; see [parameter.Values.AmbientRedirect].
		p.Redirect.RerouteInterfaces, p.Redirect.Counters = a.RerouteInterfaces, a.Counters
		p.Redirect.Without = a.Without
	}
	return nil
}

// locateNode requests the rules of the node from the node agent, and sets the parameters to the
// node's namespace and rules.
func (s *system) locateNode(p *parameters) error {
	ctx, cancel := context.WithTimeout(context.Background(), locateTimeout)
	defer cancel()
	found, err := agent.Caller{Socket: agent.SocketIn(p.runDir)}.Host(ctx)
	switch {
	case agent.IsNotFound(err):
		return fmt.Errorf("this node has no rules for probes: %w", err)
	case err != nil:
		return systemError(agentError(ctx, "--node", err))
	}
	p.host, p.netnsPath = found, found.NetNS
	return nil
}

// agentError returns the error of a failed request to the node agent for a flag.
func agentError(ctx context.Context, flag string, err error) error {
	switch {
	case agent.IsNotRunning(err):
		return fmt.Errorf("no node agent is running here: %w; %s works only in the agent's "+
			"container", err, flag)
	case agent.IsTimeout(ctx, err):
		return fmt.Errorf("the node agent does not answer within %v", locateTimeout)
	}
	return fmt.Errorf("node agent: %w", err)
}

// notRedirected returns an error if the requested pod is not redirected.
func (p *parameters) notRedirected() error {
	if p.located == nil || p.located.Redirect != nil || p.located.Ambient != nil {
		return nil
	}
	return fmt.Errorf("pod %s is not redirected: %s", p.pod, decisionText(p.located))
}

// hasIstioInit reports whether the plugin skips the pod because it has an istio-init container.
func (p *parameters) hasIstioInit() bool {
	return p.located != nil && p.located.Redirect == nil &&
		p.located.Reason == string(decide.IstioInit)
}

// decisionText describes the decision about a pod and its reason in a line.
func decisionText(l *agent.Location) string {
	line := fmt.Sprintf("%s (%s)", l.Decision, l.Reason)
	if l.Message != "" {
		line += ": " + l.Message
	}
	return rules.Printable(line)
}

// namespaceNotFound returns the error for a pod whose namespace was not found.
func (p *parameters) namespaceNotFound() error {
	if p.located == nil || p.located.NetNS != "" {
		return nil
	}
	return fmt.Errorf("pod %s: its network namespace was not found on this node: "+
		"the pod may have ended, or not yet started", p.pod)
}

// uncapturedIPv6 is the text of the node agent about IPv6 traffic of a pod.
type uncapturedIPv6 struct {
	bypass  string // describes IPv6 traffic that bypasses the proxy; empty if there is none
	unknown string // why it is unknown whether IPv6 traffic bypasses the proxy; empty if known
}

// uncapturedIPv6 returns the agent's text about IPv6 traffic of the pod. It is empty without --pod.
func (p *parameters) uncapturedIPv6() uncapturedIPv6 {
	if p.located == nil {
		return uncapturedIPv6{}
	}
	return uncapturedIPv6{p.located.IPv6Bypass, p.located.IPv6Unknown}
}
