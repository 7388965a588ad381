package istio_test

import (
	"bytes"
	"encoding/hex"
	"math/rand/v2"
	"testing"

	"google.golang.org/protobuf/proto"
	"istio.io/istio/pkg/zdsapi"

	"github.com/sluice-mesh/sluice/install/ztunnel/zds"
)

// TestZDSMessagesMatchIstios checks that requests and responses are encoded to the same bytes as
// Istio's, and decoded to the same messages.
func TestZDSMessagesMatchIstios(t *testing.T) {
	r := rand.New(rand.NewPCG(defaultSeed, 0))
	word := func() string {
		if r.IntN(5) == 0 {
			return ""
		}
		text := make([]rune, r.IntN(300))
		for i := range text {
			text[i] = []rune("abcxyz019-._/: äñ世")[r.IntN(18)]
		}
		return string(text)
	}
	for range 2000 {
		for _, pair := range messages(r, word) {
			encoded, want := marshal(t, pair.sluiceMessage), marshal(t, pair.istioMessage)
			if !bytes.Equal(encoded, want) {
				t.Fatalf("%v: encoded as\n%s, want\n%s as by Istio", pair.sluiceMessage,
					hex.EncodeToString(encoded), hex.EncodeToString(want))
			}
			for _, m := range []proto.Message{pair.sluiceMessage, pair.istioMessage} {
				decoded := m.ProtoReflect().New().Interface()
				if err := proto.Unmarshal(encoded, decoded); err != nil || !proto.Equal(decoded, m) {
					t.Fatalf("decoded message %v, error %v; want %v", decoded, err, m)
				}
			}
		}
	}
}

type pair struct{ sluiceMessage, istioMessage proto.Message }

// messages returns a message of each kind with random content, each with Sluice's and with Istio's
// type.
func messages(r *rand.Rand, word func() string) []pair {
	uid, name, namespace, account, failure := word(), word(), word(), word(), word()
	version := r.Int32N(4)
	all := []pair{
		{&zds.Hello{Version: zds.Version(version)}, &zdsapi.ZdsHello{Version: zdsapi.Version(version)}},
		{
			&zds.Response{Payload: &zds.Response_Ack{Ack: &zds.Ack{Error: failure}}},
			&zdsapi.WorkloadResponse{Payload: &zdsapi.WorkloadResponse_Ack{
				Ack: &zdsapi.Ack{Error: failure},
			}},
		},
		{
			&zds.Request{Payload: &zds.Request_Keep{Keep: &zds.KeepWorkload{Uid: uid}}},
			&zdsapi.WorkloadRequest{Payload: &zdsapi.WorkloadRequest_Keep{
				Keep: &zdsapi.KeepWorkload{Uid: uid},
			}},
		},
		{
			&zds.Request{Payload: &zds.Request_Del{Del: &zds.DelWorkload{Uid: uid}}},
			&zdsapi.WorkloadRequest{Payload: &zdsapi.WorkloadRequest_Del{
				Del: &zdsapi.DelWorkload{Uid: uid},
			}},
		},
		{
			&zds.Request{Payload: &zds.Request_SnapshotSent{SnapshotSent: &zds.SnapshotSent{}}},
			&zdsapi.WorkloadRequest{Payload: &zdsapi.WorkloadRequest_SnapshotSent{
				SnapshotSent: &zdsapi.SnapshotSent{},
			}},
		},
	}
	sluiceMessage, istioMessage := &zds.AddWorkload{Uid: uid}, &zdsapi.AddWorkload{Uid: uid}
	if r.IntN(4) > 0 {
		sluiceMessage.WorkloadInfo = &zds.WorkloadInfo{
			Name: name, Namespace: namespace, ServiceAccount: account,
		}
		istioMessage.WorkloadInfo = &zdsapi.WorkloadInfo{
			Name: name, Namespace: namespace, ServiceAccount: account,
		}
	}
	return append(all, pair{
		&zds.Request{Payload: &zds.Request_Add{Add: sluiceMessage}},
		&zdsapi.WorkloadRequest{Payload: &zdsapi.WorkloadRequest_Add{Add: istioMessage}},
	})
}

func marshal(t *testing.T, m proto.Message) []byte {
	t.Helper()
	data, err := proto.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	return data
}
