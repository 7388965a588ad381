// Package kmod knows what a kernel's modules are called and what they need, and loads them: for an
// initramfs that has no kmod and no depmod.
package kmod

import (
	"debug/elf"
	"fmt"
	"io"
	"strings"
)

// A Module is one of a kernel's modules.
type Module struct {
	// Name is the module's, with underscores: "nf_tables".
	Name string
	// Path is where its file is, uncompressed.
	Path string
	// Aliases are the names by which the kernel asks for it, with underscores: "nft_expr_redir".
	Aliases []string
	// Needs are the names of the modules that must be loaded before.
	Needs []string
}

// Describe reads what a module's file, which must be uncompressed, says of it: all but the path.
func Describe(file io.ReaderAt) (Module, error) {
	object, err := elf.NewFile(file)
	if err != nil {
		return Module{}, fmt.Errorf("read a module: %w", err)
	}
	section := object.Section(".modinfo")
	if section == nil {
		return Module{}, fmt.Errorf("read a module: no section .modinfo")
	}
	info, err := section.Data()
	if err != nil {
		return Module{}, fmt.Errorf("read a module's .modinfo: %w", err)
	}
	var m Module
	for entry := range strings.SplitSeq(string(info), "\x00") {
		key, value, _ := strings.Cut(entry, "=")
		switch key {
		case "name":
			m.Name = plain(value)
		case "alias":
			m.Aliases = append(m.Aliases, plain(value))
		case "depends":
			for name := range strings.SplitSeq(value, ",") {
				if name != "" {
					m.Needs = append(m.Needs, plain(name))
				}
			}
		}
	}
	if m.Name == "" {
		return Module{}, fmt.Errorf("read a module: .modinfo has no name")
	}
	return m, nil
}

// plain is a name as all are compared: the kernel takes - and _ for the same.
func plain(name string) string { return strings.ReplaceAll(name, "-", "_") }
