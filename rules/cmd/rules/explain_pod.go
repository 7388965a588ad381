package main

import (
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"slices"
	"strings"

	"github.com/sluice-mesh/sluice/nft/netns"
	"github.com/sluice-mesh/sluice/plugin/config"
	"github.com/sluice-mesh/sluice/plugin/decide"
	"github.com/sluice-mesh/sluice/plugin/decide/podfile"
	"github.com/sluice-mesh/sluice/rules"
	"github.com/sluice-mesh/sluice/rules/cmd/internal/color"
	"github.com/sluice-mesh/sluice/rules/diff"
	params "github.com/sluice-mesh/sluice/rules/parameter"
)

// allowedWithPod contains the flags of captureSections that can be combined with --pod FILE. The
// pod in the file determines the other parameters of these sections.
var allowedWithPod = []string{"pod-ip", "strict-istio", "without"}

// A podExplanation is the result of explain for a pod: the decision of the CNI plugin, the rules,
// and the explanations of packets.
type podExplanation struct {
	Pod     string              `json:"pod"`
	Outcome string              `json:"outcome"`
	Reason  decide.Reason       `json:"reason"`
	Message string              `json:"message"`
	Notes   []jsonNote          `json:"notes"`
	Ruleset *jsonRuleset        `json:"ruleset,omitempty"`
	Packets []packetExplanation `json:"packets,omitempty"`
}

func (podExplanation) kind() string { return "PodExplanation" }

// A jsonNote is the JSON form of a note about a decision.
type jsonNote struct {
	Kind    decide.NoteKind `json:"kind"`
	Message string          `json:"message"`
}

// addNotes adds notes, and returns their text.
func (e *podExplanation) addNotes(notes ...decide.Note) string {
	text := ""
	for _, n := range notes {
		text += fmt.Sprintf("  note: %s\n", n.Message)
		e.Notes = append(e.Notes, jsonNote{n.Kind, n.Message})
	}
	return text
}

// explainPod prints the plugin's decision about the pod in a file, and the outcomes of the packets
// under the resulting rules.
func (s *system) explainPod(p *parameters, packets []rules.Packet, budget diff.Budget) error {
	workload, podErr := s.readWorkload(p.podFile)
	settings, configErr := p.pluginSettings()
	if err := errors.Join(podErr, configErr); err != nil {
		return err
	}
	pod := workload.Pod
	attachment := decide.Attachment{
		Namespace: pod.Metadata.Namespace, Name: pod.Metadata.Name,
		Annotations: pod.Metadata.Annotations,
	}
	decision := decide.Decide(decide.Input{
		Attachment: attachment, Pod: pod, Namespace: workload.Namespace,
	}, settings)
	result := podExplanation{
		Pod: pod.Metadata.Namespace + "/" + pod.Metadata.Name, Outcome: decision.Outcome.String(),
		Reason:  decision.Reason,
		Message: decision.Message, Notes: []jsonNote{},
	}
	head := fmt.Sprintf("%s: %s\n", s.paint(color.Bold, result.Pod), decision)
	if decision.Reason == decide.NamespaceUnknown {
		head += "  add the namespace to the file: " +
			"kubectl get pod/NAME namespace/NAMESPACE -n NAMESPACE -o yaml\n"
	}
	head += result.addNotes(notesOfFile(workload, decision)...)
	if decision.Outcome == decide.Ambient {
		return s.printAmbient(head, result, pod, settings, packets, budget)
	}
	if decision.Outcome != decide.Redirect {
		head += result.addNotes(earlyDecisionNotes(attachment, settings, decision)...)
		return s.printNotRedirected(head, result, packets, budget)
	}
	addresses, assumed := p.addressesOf(pod)
	redirect, notes, err := decide.Parameters(pod, addresses, settings)
	if err != nil {
		return params.PrefixEachLine(result.Pod, err)
	}
	head += result.addNotes(append(assumed, notes...)...)
	ruleset, err := rules.Compile(redirect)
	if err != nil {
		return err
	}
	return s.printRedirected(head, result, ruleset, packets, budget)
}

// printAmbient prints the explanation of a pod in ambient mode.
func (s *system) printAmbient(
	head string, result podExplanation, pod *decide.Pod, settings *decide.Settings,
	packets []rules.Packet, budget diff.Budget,
) error {
	a, notes, err := decide.AmbientParameters(pod, settings)
	if err != nil {
		return params.PrefixEachLine(result.Pod, err)
	}
	ruleset, err := rules.CompileAmbient(a)
	if err != nil {
		return err
	}
	return s.printRedirected(head+result.addNotes(notes...), result, ruleset, packets, budget)
}

// earlyDecisionNotes returns a note with the decision that the plugin makes from the runtime's
// annotations before it reads the pod. It returns no note if there is no such decision, or if both
// decisions have the same reason. The record and the metrics contain the reason of the early
// decision.
func earlyDecisionNotes(
	a decide.Attachment, settings *decide.Settings, decision decide.Decision,
) []decide.Note {
	if len(a.Annotations) == 0 {
		// Early ignores empty annotations. The kubelet always adds this annotation.
		a.Annotations = map[string]string{"kubernetes.io/config.source": "api"}
	}
	early := decide.Early(a, settings)
	if early.Outcome == decide.Undecided || early.Reason == decision.Reason {
		return nil
	}
	return []decide.Note{{
		Kind: noteDecidedEarlier,
		Message: fmt.Sprintf(
			"if the runtime passes the annotations, the plugin decides by them before it reads the pod: %s", early),
	}}
}

// printNotRedirected prints the explanation of a pod that is not redirected.
func (s *system) printNotRedirected(
	head string, result podExplanation, packets []rules.Packet, budget diff.Budget,
) error {
	switch {
	case len(packets) == 0:
		return s.print(head, result)
	case result.Outcome != decide.Skip.String() || result.Reason == decide.IstioInit:
		head += result.addNotes(decide.Note{
			Kind:    notePacketsUnexplained,
			Message: "the packets are not explained, because the rules of the pod are not known",
		})
		return s.print(head, result)
	}
	head += result.addNotes(decide.Note{
		Kind:    noteNoRules,
		Message: "the plugin writes no rules for the pod; foreign rules are not considered",
	})
	text, explanations := s.explainPackets(rules.Ruleset{}, packets, budget, nil)
	result.Packets = explanations
	return s.print(head+"\n"+text, result)
}

// pluginSettings returns the settings in the file of --config, or the defaults. It also disables
// the deviations that flags disable.
func (p *parameters) pluginSettings() (*decide.Settings, error) {
	settings := decide.Settings{}
	if p.config != "" {
		text, err := readConfig(p.config)
		if err != nil {
			return nil, fmt.Errorf("--config: %w", err)
		}
		c, err := config.ParseList(text)
		if err != nil {
			return nil, params.PrefixEachLine(p.config, err)
		}
		settings = c.Decide
	}
	for _, id := range p.Redirect.Without {
		if !slices.Contains(settings.Without, id) {
			settings.Without = append(settings.Without, id)
		}
	}
	return &settings, nil
}

// readConfig reads a CNI configuration.
func readConfig(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	return readAtMost(f, path, 4<<20)
}

// printRedirected prints the explanation of a pod that is redirected.
func (s *system) printRedirected(
	head string, result podExplanation, ruleset rules.Ruleset, packets []rules.Packet,
	budget diff.Budget,
) error {
	object := jsonRulesetOf(ruleset)
	result.Ruleset = &object
	text, explanations := s.explainPackets(ruleset, packets, budget, nil)
	result.Packets = explanations
	return s.print(strings.TrimRight(head+"\n"+ruleset.String()+"\n"+text, "\n")+"\n", result)
}

// readWorkload reads the file, or standard input if path is "-".
func (s *system) readWorkload(path string) (*podfile.Workload, error) {
	file, err := s.open(path)
	if err != nil {
		return nil, workloadError(err)
	}
	defer func() { _ = file.Close() }()
	workload, err := podfile.Read(file)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", sourceName(path), err)
	}
	return workload, nil
}

// workloadError returns the error for a file of --pod that cannot be opened.
func workloadError(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("--pod: %w; want a file, - for standard input, or NAMESPACE/NAME", err)
	}
	return fmt.Errorf("--pod: %w", err)
}

// addressesOf returns the addresses of --pod-ip, or the addresses of the pod. For a pod without
// addresses it returns an IPv4 address, with a note.
func (p *parameters) addressesOf(pod *decide.Pod) ([]netip.Addr, []decide.Note) {
	if len(p.PodIPs) > 0 {
		return p.PodIPs, nil
	}
	if addresses := pod.Addresses(); len(addresses) > 0 {
		return addresses, nil
	}
	return []netip.Addr{netip.AddrFrom4([4]byte{192, 0, 2, 1})}, []decide.Note{{
		Kind: noteAddressAssumed,
		Message: "the pod has no address yet: it is assumed to have one IPv4 address; " +
			"set --pod-ip to use other addresses",
	}}
}

// explainPackets returns explanations of the packets, as text and as objects. deliver sets the
// delivery of a packet; it is nil if the routes are not known.
func (s *system) explainPackets(
	ruleset rules.Ruleset, packets []rules.Packet, budget diff.Budget, deliver func(*rules.Trace),
) (string, []packetExplanation) {
	var texts []string
	traces := []packetExplanation{}
	for _, packet := range packets {
		trace := diff.ExplainWithin(&ruleset, packet, budget)
		if deliver != nil {
			deliver(&trace)
		}
		texts = append(texts, s.traceText(packet, trace))
		traces = append(traces, packetExplanationOf(packet, trace))
	}
	return strings.Join(texts, "\n"), traces
}

// podConflicts returns errors for inputs that cannot be combined with --pod FILE.
func (in *inputs) podConflicts(p *parameters) []error {
	var errs []error
	for _, name := range in.givenIn(captureSections) {
		if !slices.Contains(allowedWithPod, name) {
			errs = append(errs,
				fmt.Errorf("--pod provides the parameters of the pod: "+
					"--%s cannot be combined with it", name))
		}
	}
	if p.live || p.namesNamespace() {
		errs = append(errs,
			errors.New("--pod explains what the plugin would do: "+
				"--live, --netns and --pid cannot be combined with it"))
	}
	return errs
}

// explainLocated prints the decision and the desired ruleset that the node agent reports for a pod,
// and the outcomes of the packets under these rules.
func (s *system) explainLocated(
	p *parameters, packets []rules.Packet, budget diff.Budget,
) error {
	l := p.located
	result := podExplanation{
		Pod: p.pod.String(), Outcome: l.Decision, Reason: decide.Reason(l.Reason),
		Message: l.Message, Notes: []jsonNote{},
	}
	head := fmt.Sprintf("%s: %s\n", s.paint(color.Bold, result.Pod), decisionText(l))
	if l.Redirect == nil && l.Ambient == nil {
		return s.printNotRedirected(head, result, packets, budget)
	}
	ruleset, err := p.ruleset()
	if err != nil {
		return err
	}
	head += result.addNotes(s.notesOfLocated(p)...)
	return s.printRedirected(head, result, ruleset, packets, budget)
}

// notesOfLocated returns a note with the IPv6 address of a running pod whose IPv6 is not captured,
// if its namespace can be read.
func (s *system) notesOfLocated(p *parameters) (notes []decide.Note) {
	_ = p.inNamespace(func(ns *netns.NS) error {
		addresses, err := s.podAddresses(ns)
		captured := p.Redirect.IPv6
		if p.AmbientMode {
			captured = p.Ambient.IPv6
		}
		if i := slices.IndexFunc(addresses, netip.Addr.Is6); err == nil && i >= 0 && !captured {
			notes = append(notes, decide.Note{
				Kind:    decide.IPv6Uncaptured,
				Message: fmt.Sprintf("the pod's IPv6 is not captured, but the pod has %s", addresses[i]),
			})
		}
		return nil
	})
	return notes
}
