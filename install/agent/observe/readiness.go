package observe

import (
	"fmt"
	"slices"
	"strings"
)

// A Part is a requirement of ADD.
type Part struct {
	// Name is a word: kernel, binary, configuration, rights, runtime, kubeconfig, socket.
	Name string `json:"name"`
	// Ready says that the part is as it should be.
	Ready bool `json:"ready"`
	// Unknown says that this cannot be found out before the first ADD, and is taken for granted.
	Unknown bool `json:"unknown,omitempty"`
	// Reasons are sentences: what is wrong, or what a user should know though nothing is.
	Reasons []string `json:"reasons,omitempty"`
}

// Readiness reports whether an ADD on this node would succeed now, and why.
type Readiness struct {
	Ready bool   `json:"ready"`
	Parts []Part `json:"parts"`
}

// Combine returns the readiness that the parts make. All of them are needed, but of kubeconfig and
// socket one is enough: they are two ways to the same pods.
func Combine(parts ...Part) Readiness {
	r := Readiness{Ready: true, Parts: parts}
	paths, open := 0, false
	for _, p := range parts {
		switch p.Name {
		case Kubeconfig, Socket:
			paths++
			open = open || p.Ready
		default:
			r.Ready = r.Ready && p.Ready
		}
	}
	r.Ready = r.Ready && (open || paths == 0)
	return r
}

// The names of parts.
const (
	Kernel        = "kernel"
	Binary        = "binary"
	Configuration = "configuration"
	Rights        = "rights"
	Runtime       = "runtime"
	Kubeconfig    = "kubeconfig"
	Socket        = "socket"
)

// String says it in lines, as Kubernetes' own servers do: a plus for each part that is as it should
// be, a question mark for one of which that is not known.
func (r Readiness) String() string {
	var b strings.Builder
	switch {
	case !r.Ready:
		b.WriteString("not ready: an ADD on this node would not succeed now, or not for each pod\n")
	case slices.ContainsFunc(r.Parts, func(p Part) bool { return p.Unknown }):
		b.WriteString("ready as far as is known: an ADD on this node would succeed now, unless for what has a question mark\n")
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

func (p Part) sign() string {
	switch {
	case !p.Ready:
		return "-"
	case p.Unknown:
		return "?"
	}
	return "+"
}
