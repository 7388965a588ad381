// Package observe exposes the state of the node agent: the metrics of package metrics, readiness
// with its reasons, and the HTTP handlers for both.
package observe

import (
	"fmt"
	"slices"
	"strings"
)

// A Part is a part of the installation.
type Part struct {
	// Name is kernel, binary, configuration, permissions, runtime, kubeconfig, socket or ambient.
	Name string `json:"name"`
	// Ready is set if the part has no problem, as far as known. A problem may make pods fail, or
	// start without redirection.
	Ready bool `json:"ready"`
	// Unknown is set if Ready is only assumed, because the agent cannot determine it.
	Unknown bool `json:"unknown,omitempty"`
	// Reasons are sentences about problems, or about facts that a user should know.
	Reasons []string `json:"reasons,omitempty"`
}

// Fail makes the part not ready, with a reason.
func (p *Part) Fail(reason string) {
	p.Ready, p.Reasons = false, append(p.Reasons, reason)
}

// Readiness reports whether all required parts are ready, so that an ADD on this node would succeed
// now, with reasons.
type Readiness struct {
	Ready bool   `json:"ready"`
	Parts []Part `json:"parts"`
}

// Combine returns the readiness of the parts. All of them are required, except that one of
// kubeconfig and socket is sufficient, because both provide the same pods.
func Combine(parts ...Part) Readiness {
	r := Readiness{Ready: true, Parts: parts}
	sources, podsReadable := 0, false
	for _, p := range parts {
		switch p.Name {
		case Kubeconfig, Socket:
			sources++
			podsReadable = podsReadable || p.Ready
		default:
			r.Ready = r.Ready && p.Ready
		}
	}
	r.Ready = r.Ready && (podsReadable || sources == 0)
	return r
}

// The names of parts.
const (
	Kernel        = "kernel"
	Binary        = "binary"
	Configuration = "configuration"
	Permissions   = "permissions"
	Runtime       = "runtime"
	Kubeconfig    = "kubeconfig"
	Socket        = "socket"
	Ambient       = "ambient"
)

// String returns a line for each part in the format of Kubernetes' servers. A line begins with [+]
// if the part is ready, with [?] if this is unknown, and with [-] otherwise.
func (r Readiness) String() string {
	var b strings.Builder
	switch {
	case !r.Ready:
		b.WriteString("not ready: pods that start on this node now may fail, or have no redirection\n")
	case slices.ContainsFunc(r.Parts, func(p Part) bool { return p.Unknown }):
		b.WriteString("ready as far as known: an ADD on this node would succeed now, " +
			"unless a part with a question mark is not ready\n")
	default:
		b.WriteString("ready: an ADD on this node would succeed now\n")
	}
	for _, p := range r.Parts {
		fmt.Fprintf(&b, "[%s] %s\n", p.sign(), p.Name)
		for _, reason := range p.Reasons {
			fmt.Fprintf(&b, "    %s\n", strings.ReplaceAll(reason, "\n", "\n    "))
		}
	}
	return b.String()
}

// sign returns the character in brackets for [Readiness.String].
func (p Part) sign() string {
	switch {
	case !p.Ready:
		return "-"
	case p.Unknown:
		return "?"
	}
	return "+"
}
