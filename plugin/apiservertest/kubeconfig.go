package apiservertest

import (
	"encoding/base64"
	"encoding/json"
	"os"
	"path/filepath"
)

// Kubeconfig writes a kubeconfig for the server into a new directory, and returns its path. The
// kubeconfig contains the server's certificate authority and current token, in JSON as the node
// agent writes it.
func (s *Server) Kubeconfig() string {
	s.tb.Helper()
	return s.KubeconfigWith(func(_, _ map[string]any) {})
}

// KubeconfigWith is like Kubeconfig, but calls edit to change the fields of the cluster and the
// user first. A []byte is written in base64, for fields whose names end in -data.
func (s *Server) KubeconfigWith(edit func(cluster, user map[string]any)) string {
	s.tb.Helper()
	path := filepath.Join(s.tb.TempDir(), "kubeconfig")
	s.WriteKubeconfig(path, edit)
	return path
}

// WriteKubeconfig is like KubeconfigWith, but writes to path. It replaces an existing file
// atomically.
func (s *Server) WriteKubeconfig(path string, edit func(cluster, user map[string]any)) {
	s.tb.Helper()
	cluster := map[string]any{"server": s.url, "certificate-authority-data": s.CA()}
	user := map[string]any{"token": s.Token()}
	edit(cluster, user)
	text, err := json.MarshalIndent(map[string]any{
		"apiVersion": "v1",
		"kind":       "Config",
		"clusters":   []any{map[string]any{"name": "local", "cluster": inBase64(cluster)}},
		"users":      []any{map[string]any{"name": "sluice-cni", "user": inBase64(user)}},
		"contexts": []any{map[string]any{
			"name": "sluice", "context": map[string]any{"cluster": "local", "user": "sluice-cni"},
		}},
		"current-context": "sluice",
	}, "", "  ")
	if err == nil {
		err = os.WriteFile(path+".new", text, 0o600)
	}
	if err == nil {
		err = os.Rename(path+".new", path)
	}
	if err != nil {
		s.tb.Fatal(err)
	}
}

// inBase64 replaces each []byte in the fields with its text in base64.
func inBase64(fields map[string]any) map[string]any {
	for name, value := range fields {
		if data, ok := value.([]byte); ok {
			fields[name] = base64.StdEncoding.EncodeToString(data)
		}
	}
	return fields
}
