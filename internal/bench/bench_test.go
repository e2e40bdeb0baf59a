package bench

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/maesh/provider-ichor/internal/lab"
)

func TestOptionsThatMeasureNothingAreRefused(t *testing.T) {
	for want, o := range map[string]Options{
		"at least one size":  {Window: time.Minute},
		"size 3 is too":      {Sizes: []int{10, 3}, Window: time.Minute},
		"window of 0s after": {Sizes: []int{10}},
		"of 1m0s after -1s":  {Sizes: []int{10}, Window: time.Minute, Settle: -time.Second},
	} {
		if err := o.Check(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: got %v, want %q", o, err, want)
		}
	}
	good := Options{Sizes: []int{10, 4}, Window: time.Minute}
	if err := good.Check(); err != nil || good.Machines() != 12 {
		t.Errorf("got %v and %d machines, want 12", err, good.Machines())
	}
}

func TestCallsAreCountedByRoleAndPass(t *testing.T) {
	call := func(machine, peer, method, detail string) lab.RPC {
		return lab.RPC{Machine: machine, Peer: peer, Method: method, Detail: detail}
	}
	changed := call("m2", "a", "/machine.MachineService/Reboot", "")
	changed.Mutating = true
	got := count([]lab.RPC{
		call("m1", "a", "/cosi.resource.State/List", "MachineConfigs.config.talos.dev"),
		call("m1", "b", "/machine.MachineService/EtcdMemberList", ""),
		call("m2", "a", "/cosi.resource.State/List", "MachineConfigs.config.talos.dev"),
		call("m2", "a", "/cosi.resource.State/Get", "MachineStatuses.runtime.talos.dev"),
		changed,
	}, func(machine string) bool { return machine == "m1" })
	want := rpcs{controlPlanes: 2, workers: 3, mutating: 1, controlPlanePasses: 1, workerPasses: 1, overviews: 1, connections: 2}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(rpcs{})); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

func TestRequestsAreOfOurGroupOrEvents(t *testing.T) {
	const text = `# TYPE apiserver_request_total counter
apiserver_request_total{group="ichor.maesh.dev",resource="talosmachines",verb="GET",code="200"} 1
apiserver_request_total{group="ichor.maesh.dev",resource="talosmachines",verb="LIST",code="200"} 2
apiserver_request_total{group="ichor.maesh.dev",resource="talosmachines",verb="WATCH",code="200"} 4
apiserver_request_total{group="ichor.maesh.dev",resource="talosmachines",subresource="status",verb="PUT",code="200"} 8
apiserver_request_total{group="ichor.maesh.dev",resource="talosclusters",verb="PATCH",code="200"} 16
apiserver_request_total{group="",resource="events",verb="POST",code="201"} 32
apiserver_request_total{group="",resource="events",verb="LIST",code="200"} 64
apiserver_request_total{group="coordination.k8s.io",resource="leases",verb="PUT",code="200"} 128
`
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	reads, writes, events := requests(families["apiserver_request_total"])
	if reads != 3 || writes != 24 || events != 32 {
		t.Errorf("got %v reads, %v writes, %v events; want 3, 24, 32", reads, writes, events)
	}
}

func TestTablesAreByTheMinute(t *testing.T) {
	out := &bytes.Buffer{}
	b := &bench{o: Options{Out: out, Scale: 40}, samples: []sample{
		{machines: 10, window: 2 * time.Minute, resident: 64 << 20, cpu: 1, rpcs: rpcs{controlPlanes: 60, controlPlanePasses: 6, workers: 70, workerPasses: 14, overviews: 6, connections: 1}},
		{machines: 20, window: 2 * time.Minute, resident: 65 << 20, cpu: 2, writes: 40, changes: 1, rpcs: rpcs{controlPlanes: 60, workers: 170, workerPasses: 34, connections: 1}},
	}, removals: []removal{{what: "worker", total: 4 * time.Second, steps: []step{{"Drain", time.Second}, {"Reset", 3 * time.Second}}}}}
	if err := b.report(); err != nil {
		t.Fatal(err)
	}
	_, tables, _ := strings.Cut(out.String(), "At rest")
	want := `, a minute:
  machines  RSS MiB  CPU s  RPCs  mutating  object writes  changes  events  object reads
        10       64    0.5    65         0              0      0.0     0.0             0
        20       65    1.0   115         0             20      0.5     0.0             0

Calls to machines (a pass is one Observe; an overview is read once for a whole cluster):
  machines  per worker and pass  per control plane and pass  overviews a poll  connections a machine
        10                 5.00                       10.00               1.0                      1
        20                 5.00                           -               0.0                      1
each machine more, from 10 to 20: 5.00 RPCs/min, 102 KiB resident, 0.050 s CPU/min

Removal of a worker: 4s from the delete to the end of the finalizer
  1s  Drain  ##########
  3s  Reset  ##############################
`
	if diff := cmp.Diff(want, tables); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}
