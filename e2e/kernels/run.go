package kernels

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/sluice-mesh/sluice/e2e/kernels/debian"
	"github.com/sluice-mesh/sluice/e2e/kernels/guest"
	"github.com/sluice-mesh/sluice/e2e/kernels/machine"
)

// A Run boots kernels and collects results.
type Run struct {
	// Root is the root of the checkout. Dir is the directory for downloads, unpacked files and
	// logs.
	Root, Dir string
	// Mirror is the source of packages.
	Mirror debian.Mirror
	// Parallel is the number of machines that run at the same time.
	Parallel int
	// Limit is the time limit of a machine.
	Limit time.Duration
	// Progress receives a line for each step.
	Progress io.Writer

	begin time.Time // start of Do
	mu    sync.Mutex
}

// A Task is a test run on a kernel with a module set.
type Task struct {
	Kernel  Kernel
	Modules ModuleSet
}

// String returns the name of the task, such as "5.10 amd64, no nf_tables".
func (t Task) String() string { return t.Kernel.String() + ", " + t.Modules.Name }

// Do runs the tasks and returns their results in the same order. The error contains all unexpected
// results. The result of a task whose machine did not run all steps is the zero value. If the
// kernel or the programs for a task are not available, Do starts no further tasks.
func (r *Run) Do(ctx context.Context, tasks []Task) ([]Result, error) {
	r.begin = time.Now()
	packages, err := debian.ParseList(pinnedPackages)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", packagesFile, err)
	}
	f := &fetcher{r.Mirror, packages, r.logf}
	results, errs := make([]Result, len(tasks)), make([]error, len(tasks))
	slots := make(chan struct{}, max(1, r.Parallel))
	var wg sync.WaitGroup
	ready := map[string]bool{}
	for i, t := range tasks {
		// While this goroutine prepares a task, the machines of previous tasks run.
		in, err := r.prepare(ctx, f, t.Kernel, ready)
		if err != nil {
			errs[i] = err
			break
		}
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			if results[i], errs[i] = r.runTask(ctx, t, in); errs[i] != nil {
				errs[i] = fmt.Errorf("kernel %s: %w", t, errs[i])
			}
		})
	}
	wg.Wait()
	return results, errors.Join(errs...)
}

// prepare downloads, unpacks and compiles the missing inputs of a kernel's machines, and returns
// all inputs except the steps and the excluded modules. ready contains the names of the kernels and
// architectures that are already prepared; prepare adds k and its architecture.
func (r *Run) prepare(
	ctx context.Context, f *fetcher, k Kernel, ready map[string]bool,
) (inputs, error) {
	deb, p, err := f.fetch(ctx, k.pattern(), k.sources())
	if err != nil {
		return inputs{}, err
	}
	in := inputs{
		root:     r.Root,
		kernel:   filepath.Join(r.Dir, "kernels", p.Name+"_"+p.Version),
		binaries: filepath.Join(r.Dir, "binaries-"+k.Arch),
		programs: filepath.Join(r.Dir, "programs-"+k.Arch),
	}
	if err := unpackOnce(in.kernel, func(dir string) error {
		return unpackKernel(deb, dir)
	}); err != nil {
		return inputs{}, err
	}
	if !ready[k.String()] {
		r.logf("Linux %s: %s %s", k, p.Name, p.Version)
	}
	if !ready[k.Arch] {
		if err := errors.Join(r.unpackPrograms(ctx, f, k.Arch, in.programs),
			build(ctx, r.Root, k.Arch, in.binaries)); err != nil {
			return inputs{}, err
		}
		r.logf("built commands and tests for %s", k.Arch)
	}
	ready[k.String()], ready[k.Arch] = true, true
	return in, nil
}

// unpackPrograms downloads the packages in the list programs, and unpacks them into dir.
func (r *Run) unpackPrograms(ctx context.Context, f *fetcher, arch, dir string) error {
	return unpackOnce(dir, func(dir string) error {
		for _, name := range programs {
			deb, _, err := f.fetch(ctx, name, programSources(arch))
			if err != nil {
				return err
			}
			if err := unpackProgram(deb, dir); err != nil {
				return err
			}
		}
		return nil
	})
}

// runTask boots a machine, lets it run the steps, and returns the result.
func (r *Run) runTask(ctx context.Context, t Task, in inputs) (Result, error) {
	in.guestSteps, in.excludedModules = newSteps(t.Modules), t.Modules.Without
	name := strings.NewReplacer(" ", "-", ",", "").Replace(t.String())
	initramfs := filepath.Join(r.Dir, name+".cpio")
	defer func() { _ = os.Remove(initramfs) }()
	if err := in.writeInitramfs(initramfs); err != nil {
		return Result{}, err
	}
	log, err := os.Create(filepath.Join(r.Dir, name+".log"))
	if err != nil {
		return Result{}, err
	}
	defer func() { _ = log.Close() }()

	output := newConsole()
	m := machine.Machine{
		Arch: t.Kernel.Arch, Kernel: filepath.Join(in.kernel, imageFile), Initramfs: initramfs,
		Limit: r.Limit, Log: log,
	}
	r.logf("Linux %s: booting", t)
	used, err := m.Run(ctx, func(e guest.Event) {
		output.add(e)
		r.report(t, e)
	})
	if err != nil {
		return Result{}, err
	}
	result, err := output.result(t.Kernel, t.Modules)
	if err != nil {
		return result, fmt.Errorf("%w\nthe console's output is in %s", err, log.Name())
	}
	r.logf("Linux %s: %d of %d tests passed, %.0f s of processor time", t, result.Passed,
		result.Tests, used.Seconds())
	return result, nil
}

// report logs booted kernels, durations of the steps that run tests, and failed tests.
func (r *Run) report(t Task, e guest.Event) {
	switch {
	case e.Kernel != "":
		r.logf("Linux %s: booted %s", t, e.Kernel)
	case e.Exit != nil && strings.HasPrefix(e.Step, stepTests):
		r.logf("Linux %s: %s took %.1f s by the machine's clock", t, e.Step, e.Exit.Took.Seconds())
	case e.Line != nil && strings.Contains(*e.Line, "--- FAIL: "):
		r.logf("Linux %s: %s", t, *e.Line)
	}
}

// logf prints a line with the elapsed time.
func (r *Run) logf(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	_, _ = fmt.Fprintf(r.Progress, "%4.0fs  "+format+"\n",
		append([]any{time.Since(r.begin).Seconds()}, args...)...)
}
