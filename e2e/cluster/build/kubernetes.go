package build

import (
	"context"
	"os"
	"path/filepath"
)

var kubernetes = component{
	name: "kubernetes", inputs: []string{"kubernetes.go", "kubernetes"},
	make: func(ctx context.Context, b *builder, out string) error {
		c := compilation{module: "kubernetes", out: filepath.Join(out, "kubernetes")}
		version, err := b.run(ctx, c, "list", "-m", "-f", "{{.Version}}", "k8s.io/kubernetes")
		if err != nil {
			return err
		}
		// The API server rejects the kubelet's default version 0.0.0.
		c.packages = []string{"."}
		c.flags = []string{
			"-ldflags", "-s -w -X k8s.io/component-base/version.gitVersion=" + version,
		}
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
	set: func(s *Software, dir string) { s.Kubernetes = dir },
}

// programs are the names of the links to the program kubernetes.
var programs = []string{
	"etcd", "kube-apiserver", "kube-controller-manager", "kube-proxy", "kube-scheduler", "kubeadm",
	"kubectl", "kubelet",
}
