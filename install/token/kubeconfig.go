package token

import (
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"os"
)

// kubeconfig returns the text of a kubeconfig. It is JSON, which is valid YAML.
func (o *Options) kubeconfig(token string) ([]byte, error) {
	cluster := map[string]any{"server": o.Server}
	if o.SkipTLSVerify {
		cluster["insecure-skip-tls-verify"] = true
	} else {
		authority, err := os.ReadFile(o.CAFile)
		if err != nil {
			return nil, fmt.Errorf("read the certificate authority: %w", err)
		}
		// The file may contain no complete certificate while it is being written.
		if !x509.NewCertPool().AppendCertsFromPEM(authority) {
			return nil, fmt.Errorf("certificate authority: %s contains no PEM certificate",
				o.CAFile)
		}
		cluster["certificate-authority-data"] = authority
	}
	const name = "sluice-cni"
	text, err := json.MarshalIndent(map[string]any{
		"apiVersion": "v1",
		"kind":       "Config",
		"clusters":   []any{map[string]any{"name": "local", "cluster": cluster}},
		"users": []any{map[string]any{
			"name": name, "user": map[string]any{"token": token},
		}},
		"contexts": []any{map[string]any{
			"name": name, "context": map[string]any{"cluster": "local", "user": name},
		}},
		"current-context": name,
	}, "", "  ")
	if err != nil {
		// The error of the encoder might quote the token.
		return nil, errors.New("cannot encode the kubeconfig as JSON")
	}
	return append(text, '\n'), nil
}
