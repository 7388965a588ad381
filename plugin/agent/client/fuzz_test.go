package client_test

import (
	"net"
	"testing"
	"unicode"

	"github.com/sluice-mesh/sluice/plugin/agent"
	"github.com/sluice-mesh/sluice/plugin/agent/agenttest"
	"github.com/sluice-mesh/sluice/plugin/agent/client"
	"github.com/sluice-mesh/sluice/plugin/source"
)

// FuzzAnswer sends arbitrary answers to a request for a pod: the result is the requested pod, or a
// one-line error with a kind.
func FuzzAnswer(f *testing.F) {
	f.Add(agenttest.Frames(`{"version":1}`, webPod))
	f.Add(agenttest.Frames(`{"version":1,"kind":"not-found","error":"none"}`))
	f.Add(agenttest.Frames(`{"version":1,"error":"\n"}`))
	f.Add(agenttest.Frames(`{"version":1}`, `{"metadata":null}`))
	var answer []byte
	c := client.New(client.Options{Socket: agenttest.Listen(f, func(c *net.UnixConn) {
		_, _ = agent.ReadFrame(c, agent.MaxRequest)
		_, _ = c.Write(answer)
	})})
	f.Fuzz(func(t *testing.T, sent []byte) {
		answer = sent
		pod, err := c.Pod(t.Context(), web)
		if err == nil {
			if pod.Metadata.Name != web.Name || pod.Metadata.Namespace != web.Namespace ||
				!pod.HasUID(web.UID) {
				t.Errorf("pod %+v, want the requested one", pod)
			}
			return
		}
		if kind := source.KindOf(err); kind == "" {
			t.Errorf("error %v has no kind", err)
		}
		for _, c := range err.Error() {
			if !unicode.IsPrint(c) {
				t.Errorf("character %q in the error %q is not printable", c, err)
			}
		}
	})
}
