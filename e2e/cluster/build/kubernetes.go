package build

import (
	"context"
	"os"
	"path/filepath"
)

var kubernetes = part{
	name: "kubernetes", from: []string{"kubernetes.go", "kubernetes"},
	make: func(ctx context.Context, b *builder, out string) error {
		c := compilation{module: "kubernetes", out: filepath.Join(out, "kubernetes")}
		version, err := b.run(ctx, c, "list", "-m", "-f", "{{.Version}}", "k8s.io/kubernetes")
		if err != nil {
			return err
		}
		// A kubelet says its version to the API server, which would not know 0.0.0.
		c.packages, c.flags = []string{
			".",
		}, []string{"-ldflags", "-s -w -X k8s.io/component-base/version.gitVersion=" + version}
		if err := b.compile(ctx, c); err != nil {
			return err
		}
		for _, name := range programs {
			if err := os.Symlink("kubernetes", filepath.Join(out, name)); err != nil {
				return err
			}
		}
		return nil
	},
	found: func(s *Software, dir string) { s.Kubernetes = dir },
}

// programs are what the one program of the module is called by.
var programs = []string{
	"etcd", "kube-apiserver", "kube-controller-manager", "kube-proxy", "kube-scheduler", "kubeadm",
	"kubectl", "kubelet",
}
