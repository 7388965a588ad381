// Package kmod reads the names, aliases and dependencies of kernel modules, and loads modules, for
// an initramfs without kmod and depmod.
package kmod

import (
	"debug/elf"
	"fmt"
	"io"
	"strings"
)

// A Module is a kernel module.
type Module struct {
	// Name is the name with underscores, such as "nf_tables".
	Name string
	// Path is the path of the uncompressed file.
	Path string
	// Aliases contains the names by which the kernel requests the module, with underscores, such as
	// "nft_expr_redir".
	Aliases []string
	// Needs contains the names of the modules that this module depends on.
	Needs []string
}

// Describe reads the properties of a module, except Path, from its uncompressed file.
func Describe(file io.ReaderAt) (Module, error) {
	object, err := elf.NewFile(file)
	if err != nil {
		return Module{}, fmt.Errorf("read a module: %w", err)
	}
	section := object.Section(".modinfo")
	if section == nil {
		return Module{}, fmt.Errorf("read a module: no section .modinfo")
	}
	modinfo, err := section.Data()
	if err != nil {
		return Module{}, fmt.Errorf("read a module's .modinfo: %w", err)
	}
	var m Module
	for property := range strings.SplitSeq(string(modinfo), "\x00") {
		key, value, _ := strings.Cut(property, "=")
		switch key {
		case "name":
			m.Name = withUnderscores(value)
		case "alias":
			m.Aliases = append(m.Aliases, withUnderscores(value))
		case "depends":
			for name := range strings.SplitSeq(value, ",") {
				if name != "" {
					m.Needs = append(m.Needs, withUnderscores(name))
				}
			}
		}
	}
	if m.Name == "" {
		return Module{}, fmt.Errorf("read a module: .modinfo has no name")
	}
	return m, nil
}

// withUnderscores replaces - in a name by _. Like modprobe, this package treats both characters
// alike.
func withUnderscores(name string) string { return strings.ReplaceAll(name, "-", "_") }
