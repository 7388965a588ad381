// Command kernels boots kernels in virtual machines and runs Sluice's tests on each; see package
// kernels. It compares the results of all kernels and module sets with the table in e2e/README.md.
//
// The exit code is 0 if all selected results are as expected, otherwise 1. If a required program or
// package is missing, the command prints a message and exits with 0, or with 1 if SLUICE_REQUIRE=1
// or CI=true.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"

	"github.com/sluice-mesh/sluice/e2e/kernels"
	"github.com/sluice-mesh/sluice/e2e/kernels/debian"
	"github.com/sluice-mesh/sluice/e2e/readme"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx); err != nil {
		fmt.Fprintf(os.Stderr, "kernels: %v\n", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	root := flag.String("root", "..", "root `directory` of the checkout")
	dir := flag.String("dir", "",
		"`directory` for packages and logs (default bin/kernels in the checkout)")
	mirror := flag.String("mirror", debian.DefaultMirror,
		"`URL` of the mirror of Debian's packages")
	kernel := flag.String("kernel", "",
		"run only kernels whose name contains this `text`, such as 5.10 or arm64")
	modules := flag.String("modules", "",
		"run only module sets whose name contains this `text`: all, nf_tables or legacy")
	update := flag.Bool("update", false, "write the table into e2e/README.md instead of comparing")
	pin := flag.Bool("pin", false,
		"write a list of the newest packages to packages.txt, and run no machines")
	timeout := flag.Duration("timeout", 10*time.Minute, "time limit of the command")
	limit := flag.Duration("limit", 0,
		"time limit for one machine (default four fifths of -timeout)")
	parallel := flag.Int("parallel", min(runtime.NumCPU(), 4),
		"`number` of machines that run at the same time")
	flag.Parse()
	if *limit == 0 {
		*limit = *timeout * 4 / 5
	}
	if *dir == "" {
		*dir = filepath.Join(*root, "bin", "kernels")
	}
	ctx, cancel := context.WithTimeoutCause(ctx, *timeout,
		fmt.Errorf("not finished after %s", *timeout))
	defer cancel()
	m := debian.Mirror{URL: *mirror, Dir: filepath.Join(*dir, "packages")}
	if *pin {
		return kernels.Pin(ctx, m, filepath.Join(*root, "e2e", "kernels"))
	}

	tasks := selectTasks(*kernel, *modules)
	if len(tasks) == 0 {
		return fmt.Errorf("-kernel %q -modules %q: no kernel and module set with such names", *kernel,
			*modules)
	}
	if err := kernels.InstallEmulators(ctx, *root, tasks); err != nil {
		return unavailable(err)
	}
	r := &kernels.Run{
		Root: *root, Dir: *dir, Mirror: m, Parallel: *parallel, Limit: *limit, Progress: os.Stdout,
	}
	results, err := r.Do(ctx, tasks)
	var missing *kernels.UnavailableError
	if errors.As(err, &missing) {
		return unavailable(missing)
	}
	table := kernels.Table(results)
	fmt.Println(table)
	if err != nil || *kernel+*modules != "" {
		return err
	}
	manual := filepath.Join(*root, "e2e", "README.md")
	if *update {
		return tableBlock.Write(manual, table)
	}
	return tableBlock.Check(manual, table)
}

// tableBlock is the block of e2e/README.md that contains the table.
var tableBlock = readme.Block{Name: "kernels", Command: "make e2e-kernels UPDATE=1"}

// selectTasks returns the tasks of the kernels whose name contains kernel, with the module sets
// whose name contains modules.
func selectTasks(kernel, modules string) []kernels.Task {
	var tasks []kernels.Task
	for _, k := range kernels.Kernels {
		for _, s := range kernels.ModuleSets {
			if strings.Contains(k.String(), kernel) && strings.Contains(s.Name, modules) {
				tasks = append(tasks, kernels.Task{Kernel: k, Modules: s})
			}
		}
	}
	return tasks
}

// unavailable handles the error that a program or package is missing. It returns the error if
// [kernels.Required] returns true, and otherwise prints it and returns nil.
func unavailable(err error) error {
	if kernels.Required() {
		return err
	}
	fmt.Printf("skipped, no kernel was tested: %v\n", err)
	return nil
}
