package image

import (
	"bytes"
	"debug/elf"
	"errors"
	"fmt"
)

// machines are the architectures by Go's names.
var machines = map[string]elf.Machine{"amd64": elf.EM_X86_64, "arm64": elf.EM_AARCH64}

// checkProgram refuses what would not run in an empty image on the architecture: there is neither a
// loader nor a library.
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
		return fmt.Errorf("a program for %s, not for %s", f.Machine, architecture)
	}
	for _, p := range f.Progs {
		if p.Type == elf.PT_INTERP {
			return errors.New("not static: it needs a loader, which the image has not")
		}
	}
	return nil
}
