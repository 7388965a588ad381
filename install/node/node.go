package node

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"sync"
	"time"

	"github.com/sluice-mesh/sluice/install/file"
	"github.com/sluice-mesh/sluice/install/journal"
)

// A Node is kept as settings say. Its methods are safe for concurrent use.
type Node struct {
	now  func() time.Time
	wake chan struct{}

	mu       sync.Mutex // guards what follows
	settings Settings
	status   Status

	pass        sync.Mutex // held during a pass; guards what follows
	executables *executables
	rivals      *rivals
	totals      Totals
	swept       bool
	references  map[string]Use
	counted     time.Time // when references were counted
}

// Options of a node, for those who need another than the zero value.
type Options struct {
	// Now is the clock; time.Now if nil.
	Now func() time.Time
}

// New returns a node. Nothing is looked at or changed yet.
func New(s Settings, o Options) (*Node, error) {
	s = s.WithDefaults()
	if err := s.Validate(); err != nil {
		return nil, err
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	return &Node{
		now: o.Now, wake: make(chan struct{}, 1), settings: s, executables: newExecutables(s.CNIBinDir), rivals: newRivals(),
	}, nil
}

// Update changes the settings and wakes [Node.Run]. The directories must stay the same.
func (n *Node) Update(s Settings) error {
	s = s.WithDefaults()
	if err := s.Validate(); err != nil {
		return err
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if old := n.settings; s.CNIBinDir != old.CNIBinDir || s.CNIConfDir != old.CNIConfDir || s.StateDir != old.StateDir {
		return errors.New("the directories of a node cannot change while it is kept")
	}
	n.settings = s
	n.Wake()
	return nil
}

// Wake makes [Node.Run] look at the node now.
func (n *Node) Wake() {
	select {
	case n.wake <- struct{}{}:
	default: // awake already
	}
}

// Status returns what the last pass found.
func (n *Node) Status() Status {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.status
}

func (n *Node) current() Settings {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.settings
}

// lockPatience is how long a pass waits for another process. Theirs takes some milliseconds.
const lockPatience = 5 * time.Second

// Reconcile makes one pass: it looks at the node and puts right what is not as it should be. What could not be done is in the status.
func (n *Node) Reconcile(ctx context.Context) Status {
	n.pass.Lock()
	defer n.pass.Unlock()
	s := n.current()
	status := Status{At: n.now()}
	if err := n.exclusively(ctx, s, func(j *journal.Journal, damage error) error {
		if damage != nil {
			status.add(problem(JournalLost, false, "%v", damage))
		}
		n.converge(s, j, &status)
		return nil
	}); err != nil {
		status.add(problemOf(err))
	}
	n.totals.Passes++
	n.totals.Changes += uint64(len(status.Changes))
	if !status.Installed() {
		n.totals.Failures++
	}
	n.totals.Rewrites = n.rivals.total
	status.Totals = n.totals.clone()

	n.mu.Lock()
	defer n.mu.Unlock()
	n.status = status
	return status
}

// exclusively calls do with the journal while no other process changes the node.
func (n *Node) exclusively(ctx context.Context, s Settings, do func(j *journal.Journal, damage error) error) error {
	ctx, cancel := context.WithTimeout(ctx, lockPatience)
	defer cancel()
	lock, err := journal.Acquire(ctx, s.StateDir)
	if err != nil {
		return err
	}
	j, err := journal.Open(s.StateDir)
	if j != nil {
		err = do(j, err)
	}
	return errors.Join(err, lock.Release())
}

// converge puts executables in place, and then the configuration that names them.
func (n *Node) converge(s Settings, j *journal.Journal, status *Status) {
	if !n.swept {
		n.sweep(s, status)
		for name := range confEntries(j) {
			n.rivals.wrote(name) // as far as we know: what happened in between is found out by looking
		}
	}
	outdated, ok := n.install(s, j, status)
	if !ok {
		return // a configuration without its executable would keep all pods from starting
	}
	n.fillGaps(s, j, status)
	n.configure(s, j, status, outdated)
}

// sweep removes what a killed process left half-done.
func (n *Node) sweep(s Settings, status *Status) {
	n.swept = true
	for _, dir := range []string{s.CNIConfDir, s.CNIBinDir, s.StateDir} {
		if _, err := file.Sweep(dir); err != nil {
			n.swept = false
			p := problemOf(fmt.Errorf("sweep %s: %w", dir, err))
			p.Blocking = false
			status.add(p)
		}
	}
}

// tries bounds how often a pass begins again because somebody wrote while it did.
const tries = 5

// configure makes the configuration directory as it should be.
func (n *Node) configure(s Settings, j *journal.Journal, status *Status, outdated bool) {
	var err error
	for range tries {
		var found Found
		if found, err = n.look(s, j); err != nil {
			break
		}
		concessions := n.rivals.concessions(status.At)
		concessions.Outdated = outdated
		state := Desired(s, found, concessions)
		n.notice(s, found, state, status.At)
		var changed []string
		changed, err = n.apply(s, j, Compare(state))
		status.Changes = append(status.Changes, changed...)
		status.Primary, status.Plugins = state.Primary, state.Plugins
		if errors.Is(err, file.ErrChanged) {
			continue
		}
		status.add(state.Problems...)
		break
	}
	if err != nil {
		status.add(problemOf(err))
	}
	status.Rivals = n.rivals.active(status.At)
	conceded := n.rivals.concessions(status.At)
	for _, r := range status.Rivals {
		status.add(problem(Contested, conceded == Concessions{}, "%v", r))
	}
}

// look reads what is there.
func (n *Node) look(s Settings, j *journal.Journal) (Found, error) {
	files, folders, err := readConfigurations(s.CNIConfDir)
	if err != nil {
		return Found{}, err
	}
	found := Found{Files: files, Folders: folders, Entries: confEntries(j), Executables: map[string]bool{}}
	for _, plugin := range s.TakeOver {
		found.Executables[plugin] = n.executables.exists(plugin) && !n.isNoop(s, j, plugin)
	}
	return found, nil
}

// apply makes targets true in their order, up to the first that fails, and returns the paths of those that it changed.
func (n *Node) apply(s Settings, j *journal.Journal, targets []Target) (changed []string, err error) {
	for _, t := range targets {
		path := filepath.Join(s.CNIConfDir, t.Name)
		if t.Entry != nil {
			if err := j.Note(confKey(t.Name), *t.Entry); err != nil {
				return changed, err
			}
		}
		if !t.done() {
			if t.Content == nil {
				err = file.RemoveIf(path, t.Was)
			} else {
				err = file.Replace(path, t.Was, t.Content, t.Mode)
			}
			if err != nil {
				return changed, err
			}
			changed = append(changed, path)
			n.rivals.wrote(t.Name)
		}
		if t.Forget {
			if err := j.Forget(confKey(t.Name)); err != nil {
				return changed, err
			}
			n.rivals.released(t.Name)
		}
	}
	return changed, nil
}
