package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/sluice-mesh/sluice/plugin/decide"
	"github.com/sluice-mesh/sluice/plugin/decide/podfile"
	"github.com/sluice-mesh/sluice/plugin/text"
	params "github.com/sluice-mesh/sluice/rules/parameter"
)

// The kinds of notes that only explain prints.
const (
	noteDecidedEarlier     decide.NoteKind = "decided-earlier"
	noteAddressAssumed     decide.NoteKind = "address-assumed"
	noteObjectSelected     decide.NoteKind = "object-selected"
	noteNotInjected        decide.NoteKind = "template-not-injected"
	noteAnnotationUnknown  decide.NoteKind = "annotation-unknown"
	noteNoRules            decide.NoteKind = "no-rules"
	notePacketsUnexplained decide.NoteKind = "packets-unexplained"
)

// notesOfFile returns notes about the explained object of the file, and about annotations that look
// misspelled.
func notesOfFile(w *podfile.Workload, decision decide.Decision) []decide.Note {
	var notes []decide.Note
	note := func(kind decide.NoteKind, format string, args ...any) {
		notes = append(notes, decide.Note{Kind: kind, Message: fmt.Sprintf(format, args...)})
	}
	source := w.Source
	if w.IsTemplate {
		source = "the template of the pods of " + w.Source
	}
	switch {
	case len(w.Ignored) > 0:
		const maxListed = 5
		note(noteObjectSelected, "this is %s; not explained: %s", source, text.List(w.Ignored, maxListed))
	case w.IsTemplate:
		note(noteObjectSelected, "this is %s", source)
	}
	lacksProxy := decision.Reason == decide.NotInjected ||
		decision.Reason == decide.NoProxyContainer
	if w.IsTemplate && lacksProxy {
		note(noteNotInjected,
			"istiod adds the proxy when a pod is created; istioctl kube-inject adds it to a file")
	}
	annotations := w.Pod.Metadata.Annotations
	for _, key := range slices.Sorted(maps.Keys(annotations)) {
		if suggestion, wrong := misspelled(key); wrong {
			message := fmt.Sprintf("annotation %s is unknown and has no effect", key)
			if suggestion != "" {
				message += ": did you mean " + suggestion + "?"
			}
			note(noteAnnotationUnknown, "%s", message)
		}
	}
	return notes
}

// trafficPrefix is a prefix of annotations. The catalog contains all of Istio's annotations with
// this prefix.
const trafficPrefix = "traffic.sidecar.istio.io/"

// misspelled reports whether an annotation looks like a misspelled annotation of Istio that affects
// redirection. suggestion is the most similar known annotation, or empty if none is similar.
func misspelled(key string) (suggestion string, wrong bool) {
	prefix, name, ok := strings.Cut(key, "/")
	if !ok {
		prefix, name = "", key
	}
	if prefix != "" && !strings.HasSuffix(prefix, "istio.io") {
		return "", false
	}
	least := maxDistance + 1
	for _, p := range params.OfPods() {
		for _, known := range p.Annotations {
			if key == known {
				return "", false
			}
			knownPrefix, knownName, _ := strings.Cut(known, "/")
			distance := text.Distance(strings.ToLower(name), strings.ToLower(knownName),
				maxDistance)
			// A short name, such as port, is similar to many others, and occurs with other
			// prefixes.
			const maxShortName = 6
			if len(knownName) <= maxShortName && (distance > 1 || prefix != knownPrefix) {
				continue
			}
			if distance < least {
				suggestion, least = known, distance
			}
		}
	}
	return suggestion, suggestion != "" || strings.HasPrefix(key, trafficPrefix)
}
