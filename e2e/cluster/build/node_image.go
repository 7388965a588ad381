package build

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// nodeImage is the file system of a node image like kind's: Debian, kind's files, the software of a
// node, and the images of the control plane, which the node imports at its first boot.
var nodeImage = component{
	name: "node-image",
	inputs: slices.Concat([]string{"node_image.go", "tree.go", "docker_archive.go", "node", "kind"},
		debian.inputs, kubernetes.inputs, containers.inputs, pause.inputs),
	make: func(ctx context.Context, b *builder, out string) error {
		system, err := b.build(ctx, debian)
		if err != nil {
			return err
		}
		s := &Software{}
		if err := b.buildAll(ctx, s, pause, containers, kubernetes); err != nil {
			return err
		}
		root := tree(filepath.Join(out, "root"))
		// The files are hard links to files of other components. Replace a file to change it:
		// writing to it would change the other component.
		if err := runIn(ctx, out, "cp", "-al", filepath.Join(system, "root"),
			string(root)); err != nil {
			return err
		}
		version, err := b.run(ctx, compilation{module: "kubernetes"}, "list", "-m", "-f",
			"{{.Version}}", "k8s.io/kubernetes")
		if err != nil {
			return err
		}
		return errors.Join(root.copyKindFiles(ctx, b), root.enableServices(),
			root.installPrograms(ctx, s), root.configureContainerd(ctx, s),
			root.write("kind/version", []byte(version), 0o644), root.writeImages(ctx, s, version))
	},
	set: func(s *Software, dir string) { s.NodeRoot = filepath.Join(dir, "root") },
}

// copyKindFiles copies the files of kind's node image from kind's module, and then the files in the
// directory node, which replace some of them.
func (t tree) copyKindFiles(ctx context.Context, b *builder) error {
	module, err := b.moduleDir(ctx, compilation{module: "kind"}, "sigs.k8s.io/kind")
	if err != nil {
		return err
	}
	return errors.Join(t.copy(filepath.Join(module, "images/base/files")),
		t.copy(filepath.Join(b.source, "node")))
}

// enableServices enables and disables the same services as kind's Dockerfile, and also disables
// services that change kernel-wide settings.
func (t tree) enableServices() error {
	const units = "etc/systemd/system/"
	errs := []error{
		t.link("/usr/lib/systemd/systemd", "usr/sbin/init"),
		t.write("etc/systemd/journald.conf", []byte("[Journal]\nReadKMsg=no\n"), 0o644),
		t.write("etc/machine-id", nil, 0o444), t.write("etc/resolv.conf", nil, 0o644),
		t.write("etc/hostname", nil, 0o644),
		os.RemoveAll(
			t.path("usr/lib/systemd/system/sysinit.target.wants/systemd-tmpfiles-setup.service")),
	}
	for _, pattern := range []string{
		"usr/lib/systemd/system/multi-user.target.wants/*",
		"usr/lib/systemd/system/local-fs.target.wants/*", units + "*.wants/*",
		"usr/lib/systemd/system/sockets.target.wants/*udev*",
		"usr/lib/systemd/system/sockets.target.wants/*initctl*",
		"usr/lib/systemd/system/basic.target.wants/*", "usr/lib/sysctl.d/*",
	} {
		files, err := filepath.Glob(t.path(pattern))
		errs = append(errs, err)
		for _, file := range files {
			errs = append(errs, os.Remove(file))
		}
	}
	for _, name := range []string{"kubelet", "containerd", "undo-mount-hacks"} {
		errs = append(errs, t.link("/"+units+name+".service", units+"multi-user.target.wants/"+name+
			".service"))
	}
	for _, name := range []string{"systemd-binfmt", "systemd-sysctl"} {
		errs = append(errs, t.link("/dev/null", units+name+".service"))
	}
	return errors.Join(append(errs, os.MkdirAll(t.path("etc/kubernetes/manifests"), 0o755))...)
}

// installPrograms installs the programs of a node in the directories that kind uses.
func (t tree) installPrograms(ctx context.Context, s *Software) error {
	errs := []error{os.MkdirAll(t.path("etc/cni/net.d"), 0o755)}
	for to, from := range map[string]string{
		"usr/local/bin": s.Runtime, "opt/cni/bin": s.Plugins, "usr/bin": s.Kubernetes,
	} {
		errs = append(errs, os.MkdirAll(t.path(to), 0o755),
			runIn(ctx, from, "cp", "-alf", ".", t.path(to)))
	}
	return errors.Join(errs...)
}

// configureContainerd writes containerd's configuration and the base specification of containers.
// They are like kind's, but without settings that root may not be permitted to apply on this
// machine.
func (t tree) configureContainerd(ctx context.Context, s *Software) error {
	const file = "etc/containerd/config.toml"
	content, err := os.ReadFile(t.path(file))
	if err != nil {
		return err
	}
	changed := strings.Replace(string(content), "restrict_oom_score_adj = false",
		"restrict_oom_score_adj = true", 1)
	_, rest, found := strings.Cut(changed, "sandbox_image = ")
	if changed == string(content) || !found {
		return fmt.Errorf("kind's %s: restrict_oom_score_adj or sandbox_image not found", file)
	}
	kindSandboxImage, _, _ := strings.Cut(rest, "\n")
	changed = strings.Replace(changed, kindSandboxImage, `"`+pauseImage+`"`, 1)

	out, err := exec.CommandContext(ctx, filepath.Join(s.Runtime, "ctr"), "oci", "spec").Output()
	if err != nil {
		return fmt.Errorf("ctr oci spec: %w", withStderr(err))
	}
	var spec map[string]any
	if err := json.Unmarshal(out, &spec); err != nil {
		return err
	}
	spec["hooks"] = map[string]any{
		"createContainer": []any{map[string]any{"path": "/kind/bin/mount-product-files.sh"}},
	}
	if process, isObject := spec["process"].(map[string]any); isObject {
		delete(process, "rlimits")
	}
	base, err := json.Marshal(spec)
	if err != nil {
		return err
	}
	return errors.Join(t.write(file, []byte(changed), 0o644),
		t.write("etc/containerd/cri-base.json", base, 0o644))
}

// writeImages writes the archives that the node imports: the sandbox image, and one image that
// has the names of all kube-* and etcd images that kubeadm requires.
func (t tree) writeImages(ctx context.Context, s *Software, version string) error {
	sandbox, err := os.ReadFile(s.Pause)
	if err != nil {
		return err
	}
	kubeadm := filepath.Join(s.Kubernetes, "kubeadm")
	list, err := exec.CommandContext(ctx, kubeadm, "config", "images", "list",
		"--kubernetes-version", version).Output()
	if err != nil {
		return fmt.Errorf("kubeadm config images list: %w", withStderr(err))
	}
	refs := slices.DeleteFunc(strings.Fields(string(list)), func(ref string) bool {
		return !strings.Contains(ref, "/kube-") && !strings.Contains(ref, "/etcd:")
	})
	layer := tree(string(t) + "-control-plane")
	errs := []error{
		t.write("kind/images/pause.tar", sandbox, 0o644),
		os.MkdirAll(layer.path("usr/local/bin"), 0o755),
		runIn(ctx, s.Kubernetes, "cp", "-al", ".", layer.path("usr/local/bin")),
		layer.copyProgram(ctx, t, "/usr/sbin/nft"), // for kube-proxy
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	archive := dockerArchive{
		refs: refs, root: string(layer), env: []string{"PATH=/usr/local/bin:/usr/sbin"},
	}
	return errors.Join(archive.write(ctx, t.path("kind/images/control-plane.tar")),
		os.RemoveAll(string(layer)))
}
