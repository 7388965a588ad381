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

	"github.com/sluice-mesh/sluice/compat"
	"github.com/sluice-mesh/sluice/plugin/agent"
	"github.com/sluice-mesh/sluice/plugin/decide"
	"github.com/sluice-mesh/sluice/plugin/text"
)

// locateTime limits the request for a pod. The agent replies within a second, or with an error.
const locateTime = 3 * time.Second

// podName is the namespace and name of a pod, as in --pod.
type podName struct{ namespace, name string }

func (n podName) String() string { return n.namespace + "/" + n.name }

// parsePodName parses NAMESPACE/NAME.
func parsePodName(words string) (podName, error) {
	namespace, name, _ := strings.Cut(words, "/")
	isLabel := func(label string) bool {
		return label != "" && strings.Trim(label, "-") == label &&
			!strings.ContainsFunc(label, func(c rune) bool {
				return (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '-'
			})
	}
	ok := isLabel(namespace) && len(namespace) <= 63 && len(name) <= 253
	for label := range strings.SplitSeq(name, ".") {
		ok = ok && isLabel(label)
	}
	if !ok {
		return podName{}, fmt.Errorf("%s names no pod: want NAMESPACE/NAME, such as default/web",
			text.Quote(words, 100))
	}
	return podName{namespace, name}, nil
}

// setPod sets a name, or for explain a file. A text that names an existing file, or looks like a
// file, is a file.
func (p *parameters) setPod(words string) error {
	if words == "" {
		return errors.New("it is empty: want NAMESPACE/NAME")
	}
	named, err := parsePodName(words)
	_, missing := os.Stat(words)
	looksLikeFile := slices.Contains([]string{".yaml", ".yml", ".json"}, filepath.Ext(words))
	if err == nil && missing != nil && !looksLikeFile {
		p.pod = named
	} else {
		p.podFile = words
	}
	return nil
}

func (p *parameters) setRunDir(path string) error {
	if !filepath.IsAbs(path) {
		return fmt.Errorf("%s is no absolute path", text.Quote(path, 100))
	}
	p.runDir = path
	return nil
}

// podFaults returns the errors about parameters that are not allowed with --pod.
func (in *inputs) podFaults(p *parameters) []error {
	var errs []error
	if p.podFile != "" && !slices.Contains(in.sections, sectionExplain) {
		named, err := parsePodName(p.podFile)
		if err != nil {
			return []error{fmt.Errorf("--pod: %w", err)}
		}
		p.pod, p.podFile = named, "" // here only a name is allowed
	}
	if p.node {
		for _, name := range in.givenIn(slices.Concat(captureSections, []section{sectionNamespace, sectionAgent})) {
			errs = append(errs,
				fmt.Errorf("the node agent provides the node's rules: --%s cannot be combined with --node", name))
		}
		return errs
	}
	if p.pod == (podName{}) {
		return nil
	}
	for _, name := range in.givenIn(captureSections) {
		errs = append(errs,
			fmt.Errorf("the node agent provides the parameters of the pod: --%s cannot be combined with --pod", name))
	}
	for _, name := range in.givenIn([]section{sectionNamespace}) {
		errs = append(errs, fmt.Errorf("--pod and --%s: give only one of them", name))
	}
	return errs
}

// locate requests the pod from the node agent, and sets the parameters to its namespace and its
// redirection.
func (s *system) locate(p *parameters) error {
	ctx, cancel := context.WithTimeout(context.Background(), locateTime)
	defer cancel()
	found, err := agent.Caller{
		Socket: agent.SocketIn(p.runDir),
	}.Locate(ctx, p.pod.namespace, p.pod.name)
	if err != nil {
		return s.locateWithoutAgent(ctx, p, err)
	}
	p.located, p.netnsPath = found, found.NetNS
	switch {
	case found.Redirect != nil:
		p.Redirect = *found.Redirect
	case found.Ambient != nil:
		a := found.Ambient
		p.AmbientMode, p.Ambient = true, *a
		// The parameters that both redirections have; see [parameter.Values.AmbientRedirect].
		p.Redirect.RerouteInterfaces, p.Redirect.Counters = a.RerouteInterfaces, a.Counters
		p.Redirect.Without = a.Without
	default:
		return nil
	}
	if p.Backend == string(compat.BackendAuto) && found.Backend != "" {
		p.Backend = found.Backend
	}
	return nil
}

// locateNode requests the rules of the node from the node agent, and sets the parameters to its
// namespace and its rules.
func (s *system) locateNode(p *parameters) error {
	ctx, cancel := context.WithTimeout(context.Background(), locateTime)
	defer cancel()
	found, err := agent.Caller{Socket: agent.SocketIn(p.runDir)}.Host(ctx)
	switch {
	case err == nil:
	case agent.IsNotFound(err):
		return fmt.Errorf("this node has no rules for probes: %w", err)
	case agent.IsNotRunning(err):
		return refused(fmt.Errorf("there is no node agent here to ask: %w; --node is for the agent's container", err))
	case agent.IsTimeout(ctx, err):
		return refused(fmt.Errorf("the node agent does not answer within %v", locateTime))
	default:
		return refused(fmt.Errorf("node agent: %w", err))
	}
	p.host, p.netnsPath = found, found.NetNS
	if p.Backend == string(compat.BackendAuto) && found.Backend != "" {
		p.Backend = found.Backend
	}
	return nil
}

// locateWithoutAgent returns the error for a pod that the agent did not locate.
func (s *system) locateWithoutAgent(ctx context.Context, p *parameters, err error) error {
	switch {
	case agent.IsNotFound(err):
		return fmt.Errorf("pod %s is not on this node: %w", p.pod, err)
	case agent.IsNotRunning(err):
		return refused(fmt.Errorf(
			"pod %s: there is no node agent here to ask: %w; --pod is for the agent's container",
			p.pod, err))
	case agent.IsTimeout(ctx, err):
		return refused(fmt.Errorf("pod %s: the node agent does not answer within %v", p.pod,
			locateTime))
	}
	return refused(fmt.Errorf("pod %s: node agent: %w", p.pod, err))
}

// notRedirected returns the error of a command that needs a redirected pod, or nil if the pod is
// one.
func (p *parameters) notRedirected() error {
	if p.located == nil || p.located.Redirect != nil || p.located.Ambient != nil {
		return nil
	}
	return fmt.Errorf("pod %s is not redirected: %s", p.pod, decisionText(p.located))
}

// programsItself reports whether the pod is not redirected because it has an istio-init container.
func (p *parameters) programsItself() bool {
	return p.located != nil && p.located.Redirect == nil &&
		p.located.Reason == string(decide.IstioInit)
}

// decisionText describes the decision about a pod and its reason in a line.
func decisionText(l *agent.Location) string {
	words := fmt.Sprintf("%s (%s)", l.Decision, l.Reason)
	if l.Message != "" {
		words += ": " + l.Message
	}
	return text.Printable(words)
}

// namespaceNotFound returns the error for a pod whose namespace was not found.
func (p *parameters) namespaceNotFound() error {
	if p.located == nil || p.located.NetNS != "" {
		return nil
	}
	return fmt.Errorf(
		"pod %s: no network namespace of it was found on this node: it may have ended, or not begun", p.pod)
}
