package image

import (
	"bytes"
	"debug/elf"
	"errors"
	"fmt"
)

// machines maps GOARCH to ELF machines.
var machines = map[string]elf.Machine{"amd64": elf.EM_X86_64, "arm64": elf.EM_AARCH64}

// checkProgram returns an error unless content is a static program for the architecture.
func checkProgram(content []byte, architecture string) error {
	machine, known := machines[architecture]
	if !known {
		return fmt.Errorf("architecture %q: want amd64 or arm64", architecture)
	}
	f, err := elf.NewFile(bytes.NewReader(content))
	if err != nil {
		return fmt.Errorf("not a program: %w", err)
	}
	if f.Machine != machine {
		return fmt.Errorf("program for %s, not for %s", f.Machine, architecture)
	}
	for _, p := range f.Progs {
		if p.Type == elf.PT_INTERP {
			return errors.New("not static: it requires a dynamic loader, which the image does not contain")
		}
	}
	return nil
}
