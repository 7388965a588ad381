package plugin

import (
	"errors"
	"fmt"
	"strings"

	"github.com/containernetworking/cni/pkg/types"

	"github.com/sluice-mesh/sluice/plugin/source"
	"github.com/sluice-mesh/sluice/plugin/text"
	"github.com/sluice-mesh/sluice/rules"
)

// Our own error codes. The package's documentation describes them.
const (
	CodePod        uint = 100 // the pod cannot be read
	CodeParameters uint = 101 // the pod asks for what is not allowed
	CodeApply      uint = 102 // the kernel refused the rules
	CodeVerify     uint = 103 // the kernel has other rules than it was given, or does not show what it has
	CodeDrift      uint = 104 // CHECK found differences
)

const (
	maxLine = 160 // of a message
	// maxDetails leaves room in an event for what the runtime and the kubelet add. The API server refuses one whose text is longer
	// than 1024 bytes (NoteLengthLimit of k8s.io/kubernetes/pkg/apis/core/validation), but for events of the older kind, which
	// kubelets still write, and those are to be read by people too.
	maxDetails = 768
)

// failure is an error for the runtime.
func failure(code uint, message string, err error) *types.Error {
	e := types.NewError(code, line(message), "")
	if err != nil {
		e.Details = details(err)
	}
	return e
}

// line makes a text a short line of printable characters.
func line(words string) string { return text.Cut(text.Printable(words), maxLine) }

// details writes the lines of an error on one, since the kubelet prints them so.
func details(err error) string {
	lines := strings.Split(strings.TrimSpace(err.Error()), "\n")
	for i := range lines {
		lines[i] = text.Printable(strings.TrimSpace(lines[i]))
	}
	return text.Cut(strings.Join(lines, "; "), maxDetails)
}

// configFailure is the error of a configuration.
func configFailure(err error) *types.Error {
	var faults rules.Faults
	if errors.As(err, &faults) {
		return failure(types.ErrInvalidNetworkConfig, counted("the plugin's configuration has", len(faults), "wrong field"), err)
	}
	return failure(types.ErrDecodingFailure, "the plugin's configuration cannot be read", err)
}

// podFailure is the error of a pod that could not be read. Where asking again may help, the runtime is told so.
func podFailure(ref source.Ref, err error) *types.Error {
	code := CodePod
	if source.IsUnavailable(err) || source.IsReplaced(err) {
		code = types.ErrTryAgainLater
	}
	message := fmt.Sprintf("pod %s cannot be read, so it is not known whether it is in the mesh (%s)", ref.Shown(), source.KindOf(err))
	return failure(code, message, err)
}

// counted writes "has 1 wrong field" or "has 2 wrong fields".
func counted(before string, n int, noun string) string {
	if n != 1 {
		noun += "s"
	}
	return fmt.Sprintf("%s %d %s", before, n, noun)
}
