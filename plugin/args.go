package plugin

import (
	"fmt"
	"strings"

	"github.com/containernetworking/cni/pkg/skel"
	"github.com/containernetworking/cni/pkg/types"

	"github.com/sluice-mesh/sluice/plugin/record"
	"github.com/sluice-mesh/sluice/plugin/source"
	"github.com/sluice-mesh/sluice/plugin/text"
)

// attachmentKey returns the key of the attachment that the runtime names.
func attachmentKey(args *skel.CmdArgs) record.Key {
	return record.Key{ContainerID: args.ContainerID, IfName: args.IfName}
}

// podArgs are the entries of CNI_ARGS about a Kubernetes pod.
type podArgs struct {
	source.Ref
	// sandbox is the container id of the pod's sandbox (K8S_POD_INFRA_CONTAINER_ID).
	sandbox string
}

// parseArgs parses CNI_ARGS: pairs KEY=VALUE, separated by semicolons, in any order. If a key is
// repeated, the last value is used. Unknown keys are ignored, with or without IgnoreUnknown,
// because runtimes add keys. Without a pod the result is the zero value.
func parseArgs(pairs string) (podArgs, error) {
	var a podArgs
	for pair := range strings.SplitSeq(pairs, ";") {
		key, value, ok := strings.Cut(pair, "=")
		if !ok && strings.TrimSpace(pair) != "" {
			message := fmt.Sprintf("CNI_ARGS: %q is not a pair KEY=VALUE",
				text.Truncate(pair, maxLine/2))
			return podArgs{}, cniError(types.ErrInvalidEnvironmentVariables, message, nil)
		}
		switch key {
		case "K8S_POD_NAMESPACE":
			a.Namespace = value
		case "K8S_POD_NAME":
			a.Name = value
		case "K8S_POD_UID":
			a.UID = value
		case "K8S_POD_INFRA_CONTAINER_ID":
			a.sandbox = value
		}
	}
	return a, nil
}
