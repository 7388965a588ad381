package token

import (
	"cmp"
	"errors"
	"fmt"
	"net"

	"github.com/sluice-mesh/sluice/rules"
)

// ServerURL returns the URL of the API server from KUBERNETES_SERVICE_HOST and
// KUBERNETES_SERVICE_PORT, which the kubelet sets in each pod, and KUBERNETES_SERVICE_PROTOCOL, by
// default https. The error names all invalid variables.
func ServerURL(getenv func(name string) string) (string, error) {
	protocol := cmp.Or(getenv("KUBERNETES_SERVICE_PROTOCOL"), "https")
	host, port := getenv("KUBERNETES_SERVICE_HOST"), getenv("KUBERNETES_SERVICE_PORT")
	var errs []error
	if protocol != "https" {
		errs = append(errs,
			fmt.Errorf(
				"KUBERNETES_SERVICE_PROTOCOL: %q must be https, the only protocol of the plugin",
				protocol))
	}
	if host == "" {
		errs = append(errs,
			errors.New(
				"KUBERNETES_SERVICE_HOST: must be the address of the API server, but is not set"))
	}
	if _, err := rules.ParsePort(port); err != nil {
		errs = append(errs, fmt.Errorf("KUBERNETES_SERVICE_PORT: %w", err))
	}
	if len(errs) > 0 {
		return "", errors.Join(errs...)
	}
	return protocol + "://" + net.JoinHostPort(host, port), nil
}
