package build

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
)

// Files in Software.VM.
const (
	VMDisk    = "disk.img"
	VMKernel  = "vmlinuz"          // also in vm-services.yaml of package cluster
	VMModule  = "virtio_blk.ko.xz" // the driver of the disk
	VMBusybox = "busybox"
)

// vmDiskSize is the size of the sparse disk image.
const vmDiskSize = "8G"

// ForVM returns the software of a node in a virtual machine, including CRI-O if withCRIO is true.
func ForVM(ctx context.Context, log io.Writer, withCRIO bool) (*Software, error) {
	components := []component{nodeProgram, pause, containers, kubernetes}
	if withCRIO {
		components = append(components, crio, vmWithCRIO)
	} else {
		components = append(components, vm)
	}
	return buildSoftware(ctx, log, components...)
}

var (
	vm         = vmComponent("vm")
	vmWithCRIO = vmComponent("vm-crio", crio)
)

// vmComponent returns the component of a virtual machine's boot files, with additional software on
// its disk.
func vmComponent(name string, extra ...component) component {
	inputs := slices.Concat([]string{"vm.go"}, vmSystem.inputs, kubernetes.inputs,
		containers.inputs)
	for _, c := range extra {
		inputs = append(inputs, c.inputs...)
	}
	return component{
		name: name, inputs: inputs,
		make: func(ctx context.Context, b *builder, out string) error {
			system, err := b.build(ctx, vmSystem)
			if err != nil {
				return err
			}
			s := &Software{}
			if err := b.buildAll(ctx, s, append(extra, containers, kubernetes)...); err != nil {
				return err
			}
			root := tree(filepath.Join(out, "root"))
			// The files are hard links to files of other components, and must not be written to.
			if err := runIn(ctx, out, "cp", "-al", filepath.Join(system, "root"),
				string(root)); err != nil {
				return err
			}
			return errors.Join(root.installVMPrograms(ctx, s), root.copyBootFiles(ctx, out),
				runIn(ctx, out, "mke2fs", "-q", "-t", "ext4", "-E", "lazy_itable_init=0",
					"-d", string(root), VMDisk, vmDiskSize),
				os.RemoveAll(string(root)))
		},
		set: func(s *Software, dir string) { s.VM = dir },
	}
}

// installVMPrograms adds the programs that do not come from packages.
func (t tree) installVMPrograms(ctx context.Context, s *Software) error {
	programs := []string{
		filepath.Join(s.Runtime, "crictl"), filepath.Join(s.Kubernetes, "kubernetes"),
	}
	var errs []error
	if s.CRIO != "" {
		programs = append(programs, filepath.Join(s.CRIO, "crio"), filepath.Join(s.CRIO, "pinns"))
		errs = append(errs, runIn(ctx, s.CRIO, "cp", "-al", crioUnit, t.path("etc/systemd/system")))
	}
	for _, program := range programs {
		errs = append(errs, runIn(ctx, s.Runtime, "cp", "-al", program, t.path("usr/local/bin")))
	}
	for _, name := range []string{"kubelet", "kube-proxy"} {
		errs = append(errs, t.link("kubernetes", "usr/local/bin/"+name))
	}
	return errors.Join(errs...)
}

// copyBootFiles copies the kernel and the files of the initramfs from the tree to the directory
// out.
func (t tree) copyBootFiles(ctx context.Context, out string) error {
	var errs []error
	for name, pattern := range map[string]string{
		VMKernel: "boot/vmlinuz-*", VMBusybox: "usr/bin/busybox",
		VMModule: "usr/lib/modules/*/kernel/drivers/block/" + VMModule,
	} {
		file, err := t.onlyFile(pattern)
		if err == nil {
			err = runIn(ctx, out, "cp", file, name)
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// onlyFile returns the file that matches the pattern. It returns an error if not exactly one file
// matches.
func (t tree) onlyFile(pattern string) (string, error) {
	files, err := filepath.Glob(t.path(pattern))
	if err != nil || len(files) != 1 {
		return "", errors.Join(fmt.Errorf("%d files match %s, want one", len(files), pattern), err)
	}
	return files[0], nil
}
