package kmod

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// Load loads the module with a name or alias, and its dependencies, unless they are already loaded.
// It returns an error for an unknown name.
func (ix Index) Load(nameOrAlias string) error {
	order, err := ix.Order(nameOrAlias)
	if err != nil {
		return err
	}
	if len(order) == 0 {
		return fmt.Errorf("no module %s", nameOrAlias)
	}
	for _, m := range order {
		if err := insert(m); err != nil {
			return fmt.Errorf("load module %s: %w", m.Name, err)
		}
	}
	return nil
}

// insert loads a single module unless it is already loaded.
func insert(m Module) error {
	file, err := os.Open(m.Path)
	if err != nil {
		return err
	}
	defer func() { _ = file.Close() }()
	if err := unix.FinitModule(int(file.Fd()), "", 0); err != nil && !errors.Is(err, unix.EEXIST) {
		return err
	}
	return nil
}
