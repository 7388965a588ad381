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

// Error codes of this plugin, described in the documentation of the package.
const (
	CodePod        uint = 100 // the pod cannot be read
	CodeParameters uint = 101 // the pod has invalid settings
	CodeApply      uint = 102 // rules cannot be installed or removed
	CodeVerify     uint = 103 // the kernel has other rules than ADD sent, or rules are unreadable
	CodeDrift      uint = 104 // CHECK found differences, or rules of a pod without redirection
)

const (
	maxLine = 160 // the maximum length of a message in bytes
	// maxDetails is the maximum length of the details in bytes. It leaves room in an event for the
	// text that the runtime and the kubelet add. The API server rejects an event of
	// events.k8s.io/v1 with a text of more than 1024 bytes (NoteLengthLimit in
	// k8s.io/kubernetes/pkg/apis/core/validation). Kubelets still write the older kind of event,
	// which has no such limit.
	maxDetails = 768
)

// cniError returns an error for the runtime. Its details are the text of err; err may be nil.
func cniError(code uint, message string, err error) *types.Error {
	e := types.NewError(code, shortLine(message), "")
	if err != nil {
		e.Details = details(err)
	}
	return e
}

// shortLine returns the text as one line of at most maxLine bytes with printable characters.
func shortLine(s string) string { return text.Truncate(rules.Printable(s), maxLine) }

// details returns the text of an error on one line, as the kubelet prints it, in at most maxDetails
// bytes.
func details(err error) string {
	lines := strings.Split(strings.TrimSpace(err.Error()), "\n")
	for i := range lines {
		lines[i] = rules.Printable(strings.TrimSpace(lines[i]))
	}
	return text.Truncate(strings.Join(lines, "; "), maxDetails)
}

// configError returns the error for an invalid configuration.
func configError(err error) *types.Error {
	var faults rules.Faults
	if errors.As(err, &faults) {
		message := countText("the plugin's configuration has", len(faults), "invalid field")
		return cniError(types.ErrInvalidNetworkConfig, message, err)
	}
	return cniError(types.ErrDecodingFailure, "the plugin's configuration cannot be read", err)
}

// podError returns the error for a pod that could not be read. The error has the code
// [types.ErrTryAgainLater] if the pod may be readable later without a change by a user.
func podError(ref source.Ref, err error) *types.Error {
	code := CodePod
	if source.IsUnavailable(err) || source.IsReplaced(err) {
		code = types.ErrTryAgainLater
	}
	const format = "pod %s cannot be read, so it is not known whether it is in the mesh (%s)"
	return cniError(code, fmt.Sprintf(format, ref.Shown(), source.KindOf(err)), err)
}

// countText returns before, n and the noun, which gets the plural ending unless n is 1, such as
// "pod a/b has 2 invalid settings".
func countText(before string, n int, noun string) string {
	if n != 1 {
		noun += "s"
	}
	return fmt.Sprintf("%s %d %s", before, n, noun)
}
