package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	clientexec "k8s.io/client-go/util/exec"
)

// traceVerb is the verb that runs for all pods at the same time.
const traceVerb = "trace"

// runVerb runs rules VERB for the pods that the user names.
func (o *options) runVerb(ctx context.Context, verb, target string, args []string) error {
	if slices.Contains(args, "-h") || slices.Contains(args, "--help") ||
		slices.Contains(args, "--help-all") {
		return o.remoteHelp(ctx, verb, args)
	}
	args, input, inputErr := o.readInput(args)
	c, configErr := o.connect()
	faults := append(o.flagFaults, inputErr, o.checkTarget(target), configErr)
	if err := errors.Join(faults...); err != nil {
		return err
	}
	pods, err := o.pods(ctx, c, target)
	if err != nil {
		return err
	}
	if verb == traceVerb {
		return o.trace(ctx, c, pods, args)
	}
	var result error
	for i := range pods {
		if len(pods) > 1 {
			fmt.Fprintf(o.streams.ErrOut, "pod %s/%s on node %s\n", pods[i].Namespace, pods[i].Name,
				pods[i].Spec.NodeName)
		}
		var stdin io.Reader
		if input != nil {
			stdin = bytes.NewReader(input)
		}
		err := o.runRules(ctx, c, &pods[i], stdin, o.streams.Out, o.streams.ErrOut,
			append([]string{verb}, args...))
		if len(pods) > 1 {
			err = o.reportPod(&pods[i], err)
		}
		result = higherCode(result, err)
	}
	return result
}

// reportPod prints an error of kubectl sluice itself with the name of the pod, and returns an error
// with the exit code. The error of a command in a node agent, which has printed its own errors, is
// returned unchanged.
func (o *options) reportPod(pod *corev1.Pod, err error) error {
	if err == nil || errors.As(err, new(clientexec.CodeExitError)) {
		return err
	}
	o.report(fmt.Errorf("pod %s/%s: %w", pod.Namespace, pod.Name, err))
	return clientexec.CodeExitError{Err: err, Code: codeOf(err)}
}

// remoteHelp prints the help of rules VERB, which it requests from any node agent.
func (o *options) remoteHelp(ctx context.Context, verb string, args []string) error {
	c, err := o.connect()
	if err != nil {
		return err
	}
	agents, err := o.agents(ctx, c, "")
	if err != nil {
		return err
	}
	for i := range agents {
		if agents[i].Status.Phase == corev1.PodRunning {
			help := "--help"
			if slices.Contains(args, "--help-all") {
				help = "--help-all"
			}
			return c.exec(ctx, &agents[i], nil, o.streams.Out, o.streams.ErrOut, "rules", verb,
				help)
		}
	}
	return errors.New("no node agent runs in the cluster")
}

// fileFlags are the flags of rules whose values are files on the user's machine.
var fileFlags = []string{"--iptables-save", "--ip6tables-save", "--nft", "--istio-log"}

// readInput returns the arguments with "-" in place of the name of a file, and the content of the
// file or of standard input. The content is nil if the arguments name no file.
func (o *options) readInput(args []string) ([]string, []byte, error) {
	args = slices.Clone(args)
	var input []byte
	inputFlag := ""
	for i := range args {
		value := &args[i]
		flag, file, isInline := strings.Cut(args[i], "=")
		if !slices.Contains(fileFlags, flag) {
			continue
		}
		if !isInline {
			if i+1 == len(args) {
				continue
			}
			value, file = &args[i+1], args[i+1]
		}
		if inputFlag != "" {
			return nil, nil, badInput("%s and %s: at most one file can be sent to a node agent",
				inputFlag, flag)
		}
		var err error
		if file == "-" {
			input, err = io.ReadAll(o.streams.In)
		} else {
			input, err = os.ReadFile(file)
		}
		if err != nil {
			return nil, nil, badInput("%s: %w", flag, err)
		}
		inputFlag, *value = flag, "-"
		if isInline {
			*value = flag + "=-"
		}
		if input == nil {
			input = []byte{} // the file is empty
		}
	}
	return args, input, nil
}

// runRules runs rules for a pod in the node agent of its node. args begins with the verb.
func (o *options) runRules(
	ctx context.Context, c cluster, pod *corev1.Pod, in io.Reader, out, errOut io.Writer,
	args []string,
) error {
	agent, err := o.agentOf(ctx, c, pod.Spec.NodeName)
	if err != nil {
		return err
	}
	command := append([]string{"rules", args[0], "--pod", pod.Namespace + "/" + pod.Name},
		args[1:]...)
	return c.exec(ctx, agent, in, out, errOut, command...)
}

// trace traces all pods at the same time until each trace has ended. The first signal ends the
// standard input of the traces, which then print their summaries.
func (o *options) trace(ctx context.Context, c cluster, pods []corev1.Pod, args []string) error {
	var (
		group  sync.WaitGroup
		lock   sync.Mutex
		result error
	)
	for i := range pods {
		pod := &pods[i]
		out, errOut := o.streams.Out, o.streams.ErrOut
		if len(pods) > 1 {
			prefix := fmt.Sprintf("%s/%s: ", pod.Namespace, pod.Name)
			out = &lineWriter{output: out, prefix: prefix, lock: &lock}
			errOut = &lineWriter{output: errOut, prefix: prefix, lock: &lock}
		}
		stdin, end := io.Pipe()
		stop := context.AfterFunc(ctx, func() {
			o.releaseSignals()
			_ = end.Close()
		})
		group.Go(func() {
			defer stop()
			command := append([]string{traceVerb, "--until-eof"}, args...)
			err := o.runRules(context.WithoutCancel(ctx), c, pod, stdin, out, errOut, command)
			lock.Lock()
			defer lock.Unlock()
			if len(pods) > 1 {
				err = o.reportPod(pod, err)
			}
			result = higherCode(result, err)
		})
	}
	group.Wait()
	return result
}

// higherCode returns the error with the higher exit code, or the first error without an exit code.
func higherCode(a, b error) error {
	codeA, codeB := new(clientexec.CodeExitError), new(clientexec.CodeExitError)
	switch {
	case a == nil:
		return b
	case b == nil, !errors.As(a, codeA), errors.As(b, codeB) && codeA.Code >= codeB.Code:
		return a
	}
	return b
}

// A lineWriter writes whole lines; if the data does not end with a newline, its last line is
// dropped. Lines that are not JSON objects get a prefix.
type lineWriter struct {
	output io.Writer
	prefix string
	lock   *sync.Mutex
	rest   []byte // beginning of a line that is not complete yet
}

func (w *lineWriter) Write(data []byte) (int, error) {
	w.lock.Lock()
	defer w.lock.Unlock()
	w.rest = append(w.rest, data...)
	for {
		line, rest, found := bytes.Cut(w.rest, []byte("\n"))
		if !found {
			return len(data), nil
		}
		prefix := w.prefix
		if bytes.HasPrefix(line, []byte("{")) {
			prefix = ""
		}
		if _, err := fmt.Fprintf(w.output, "%s%s\n", prefix, line); err != nil {
			return 0, err
		}
		w.rest = rest
	}
}
