package image

import (
	"bytes"
	"debug/elf"
	"fmt"
	"io"
	"io/fs"
	"strings"
)

// machines contains the ELF machine of each supported architecture.
var machines = map[string]elf.Machine{"amd64": elf.EM_X86_64, "arm64": elf.EM_AARCH64}

// checkProgram returns an error if content is not a program or library for the platform's
// architecture, or if it needs a dynamic loader that the image does not contain.
func checkProgram(content []byte, p Platform) error {
	machine, known := machines[p.Architecture]
	if !known {
		return fmt.Errorf("architecture %q: want amd64 or arm64", p.Architecture)
	}
	f, err := elf.NewFile(bytes.NewReader(content))
	if err != nil {
		return fmt.Errorf("not a program: %w", err)
	}
	if f.Machine != machine {
		return fmt.Errorf("program for %s, not for %s", f.Machine, p.Architecture)
	}
	for _, segment := range f.Progs {
		if segment.Type != elf.PT_INTERP {
			continue
		}
		path, err := io.ReadAll(segment.Open())
		if err != nil {
			return err
		}
		loader := strings.Trim(string(path), "/\x00")
		if _, err := fs.Stat(p.Root, loader); err != nil {
			return fmt.Errorf("not static: the image does not contain its dynamic loader %s",
				loader)
		}
	}
	return nil
}
