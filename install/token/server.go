package token

import (
	"cmp"
	"errors"
	"fmt"
	"net"

	"github.com/sluice-mesh/sluice/rules"
)

// ServerURL returns where the API server is, by what the kubelet tells each pod:
// KUBERNETES_SERVICE_PROTOCOL, which is https if it is empty, KUBERNETES_SERVICE_HOST and
// KUBERNETES_SERVICE_PORT. The error names all variables that are wrong.
func ServerURL(getenv func(name string) string) (string, error) {
	protocol := cmp.Or(getenv("KUBERNETES_SERVICE_PROTOCOL"), "https")
	host, port := getenv("KUBERNETES_SERVICE_HOST"), getenv("KUBERNETES_SERVICE_PORT")
	var faults []error
	if protocol != "https" {
		faults = append(faults, fmt.Errorf("KUBERNETES_SERVICE_PROTOCOL: %q: want https, which is all that the plugin speaks", protocol))
	}
	if host == "" {
		faults = append(faults, errors.New("KUBERNETES_SERVICE_HOST: not set; want the address of the API server"))
	}
	if _, err := rules.ParsePort(port); err != nil {
		faults = append(faults, fmt.Errorf("KUBERNETES_SERVICE_PORT: %q: want a port (1-65535)", port))
	}
	if len(faults) > 0 {
		return "", errors.Join(faults...)
	}
	return protocol + "://" + net.JoinHostPort(host, port), nil
}
