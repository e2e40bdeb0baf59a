package talos

import (
	"context"
	"encoding/base64"
	"fmt"
	"strings"
	"testing"

	cosiv1alpha1 "github.com/cosi-project/runtime/api/v1alpha1"
	"github.com/cosi-project/runtime/pkg/resource"
	"github.com/cosi-project/runtime/pkg/resource/protobuf"
	"github.com/google/go-cmp/cmp"
	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	configpb "github.com/siderolabs/talos/pkg/machinery/api/resource/config"
	"github.com/siderolabs/talos/pkg/machinery/resources/config"
	"github.com/siderolabs/talos/pkg/machinery/resources/hardware"
	"github.com/siderolabs/talos/pkg/machinery/resources/k8s"
	"github.com/siderolabs/talos/pkg/machinery/resources/runtime"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"
)

// running is a machine that answers everything, and a client for it.
func running(t *testing.T) (*machine, *Client) {
	t.Helper()
	ca := newAuthority(t)
	m := start(t, ca.configured(t))
	m.read = []string{"0a1b2c3d-0000-", "4000-8000-000000000001\n"}
	m.unary = func(_ context.Context, method string, _ any) (any, error) {
		r, ok := replies[method]
		if !ok {
			return nil, fmt.Errorf("the test has no reply for %s", method)
		}
		return r, nil
	}
	sys := hardware.NewSystemInformation(hardware.SystemInformationID)
	sys.TypedSpec().UUID = "4C4C4544-0042-3510-8052-B4C04F4D3132"
	m.create(t, sys)
	name := k8s.NewNodename(k8s.NamespaceName, k8s.NodenameID)
	name.TypedSpec().Nodename = "host-1"
	m.create(t, name)
	st := runtime.NewMachineStatus()
	st.TypedSpec().Stage = runtime.MachineStageBooting
	st.TypedSpec().Status.UnmetConditions = []runtime.UnmetCondition{{Name: "services", Reason: "etcd not running"}}
	m.create(t, st)
	m.create(t, rawMachineConfig(t, config.ActiveID, newerConfig))
	m.create(t, rawMachineConfig(t, config.PersistentID, "staged"))
	m.create(t, rawMachineConfig(t, "maintenance", "other"))
	for name, version := range map[string]string{"schematic": "376567988ad370138ad8b2698212367b8edcb69b5fd68c80be1f2ec7d603b4ba", "iscsi-tools": "v0.2.0"} {
		e := runtime.NewExtensionStatus(runtime.NamespaceName, name)
		e.TypedSpec().Metadata.Name, e.TypedSpec().Metadata.Version = name, version
		m.create(t, e)
	}
	return m, pool(t, Options{}).Machine(m.address(), ca.client(t))
}

// newerConfig has documents that the machinery of this module does not know.
const newerConfig = "apiVersion: v1alpha1\nkind: KubeClusterConfig\nfrom: the future\n# with a comment\n"

// rawMachineConfig makes the resource as a newer Talos would: its bytes need not be known here.
func rawMachineConfig(t *testing.T, id, yaml string) resource.Resource {
	t.Helper()
	spec, err := proto.Marshal(&configpb.MachineConfigSpec{YamlMarshalled: []byte(yaml)})
	if err != nil {
		t.Fatal(err)
	}
	md := resource.NewMetadata(config.NamespaceName, config.MachineConfigType, id, resource.VersionUndefined)
	shell, err := protobuf.FromResource(protoResource{md: &md})
	if err != nil {
		t.Fatal(err)
	}
	wire, err := shell.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	wire.Spec = &cosiv1alpha1.Spec{ProtoSpec: spec}
	r, err := protobuf.Unmarshal(wire)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// protoResource is a resource with metadata and nothing else.
type protoResource struct{ md *resource.Metadata }

func (r protoResource) Metadata() *resource.Metadata { return r.md }
func (r protoResource) Spec() any                    { return emptySpec{} }
func (r protoResource) DeepCopy() resource.Resource  { return r }

type emptySpec struct{}

func (emptySpec) MarshalProto() ([]byte, error) { return nil, nil }

var replies = map[string]any{
	"Version": &machineapi.VersionResponse{Messages: []*machineapi.Version{{Version: &machineapi.VersionInfo{Tag: "v1.13.9"}}}},
	"ServiceList": &machineapi.ServiceListResponse{Messages: []*machineapi.ServiceList{{Services: []*machineapi.ServiceInfo{
		{Id: "kubelet", State: "Running"}, {Id: "etcd", State: "Failed", Events: &machineapi.ServiceEvents{Events: []*machineapi.ServiceEvent{
			{Msg: "Running pre state"}, {Msg: "Failed to run pre stage: read tcp 192.0.2.1:45678->192.0.2.9:443: -----BEGIN CERTIFICATE-----\nc2VjcmV0\n-----END CERTIFICATE-----"},
		}}},
	}}}},
	"EtcdStatus": &machineapi.EtcdStatusResponse{Messages: []*machineapi.EtcdStatus{{MemberStatus: &machineapi.EtcdMemberStatus{
		MemberId: 11, Leader: 12, RaftTerm: 3, RaftIndex: 100, RaftAppliedIndex: 99, IsLearner: true, Errors: []string{"x"},
	}}}},
	"EtcdMemberList": &machineapi.EtcdMemberListResponse{Messages: []*machineapi.EtcdMembers{{Members: []*machineapi.EtcdMember{
		{Id: 12, Hostname: "cp-2", PeerUrls: []string{"https://192.0.2.12:2380", "https://[2001:db8::2]:2380"}},
		{Id: 11, IsLearner: true, PeerUrls: []string{"::nonsense"}},
	}}}},
	"EtcdAlarmList": &machineapi.EtcdAlarmListResponse{Messages: []*machineapi.EtcdAlarm{{MemberAlarms: []*machineapi.EtcdMemberAlarm{
		{MemberId: 11, Alarm: machineapi.EtcdMemberAlarm_NOSPACE}, {MemberId: 12, Alarm: machineapi.EtcdMemberAlarm_NONE},
	}}}},
	"ApplyConfiguration": &machineapi.ApplyConfigurationResponse{Messages: []*machineapi.ApplyConfiguration{{
		ModeDetails: "Applied configuration without a reboot", Warnings: []string{"careful"},
	}}},
	"Bootstrap":             &machineapi.BootstrapResponse{Messages: []*machineapi.Bootstrap{{}}},
	"EtcdLeaveCluster":      &machineapi.EtcdLeaveClusterResponse{},
	"EtcdRemoveMemberByID":  &machineapi.EtcdRemoveMemberByIDResponse{},
	"EtcdForfeitLeadership": &machineapi.EtcdForfeitLeadershipResponse{},
	"Reset":                 &machineapi.ResetResponse{},
	"Reboot":                &machineapi.RebootResponse{},
}

func TestReads(t *testing.T) {
	m, c := running(t)
	calls := 0
	c.pool.options.OnCall = func(string, string) { calls++ }
	cases := map[string]struct {
		read func(context.Context) (any, error)
		want any
	}{
		"System":      {func(ctx context.Context) (any, error) { return c.System(ctx) }, System{UUID: "4c4c4544-0042-3510-8052-b4c04f4d3132"}},
		"Status":      {func(ctx context.Context) (any, error) { return c.Status(ctx) }, Status{Stage: "booting", Unmet: []string{"services: etcd not running"}}},
		"Version":     {func(ctx context.Context) (any, error) { return c.Version(ctx) }, "v1.13.9"},
		"BootID":      {func(ctx context.Context) (any, error) { return c.BootID(ctx) }, "0a1b2c3d-0000-4000-8000-000000000001"},
		"Nodename":    {func(ctx context.Context) (any, error) { return c.Nodename(ctx) }, "host-1"},
		"Config":      {func(ctx context.Context) (any, error) { return c.Config(ctx) }, Config{Active: []byte(newerConfig), Persistent: []byte("staged")}},
		"Schematic":   {func(ctx context.Context) (any, error) { return c.Schematic(ctx) }, "376567988ad370138ad8b2698212367b8edcb69b5fd68c80be1f2ec7d603b4ba"},
		"EtcdService": {func(ctx context.Context) (any, error) { return c.EtcdService(ctx) }, Service{State: "Failed", Says: "Failed to run pre stage: read: ***"}},
		"EtcdStatus":  {func(ctx context.Context) (any, error) { return c.EtcdStatus(ctx) }, EtcdStatus{Member: 11, Leader: 12, Term: 3, RaftIndex: 100, AppliedIndex: 99, Learner: true, Errors: []string{"x"}}},
		"EtcdMembers": {func(ctx context.Context) (any, error) { return c.EtcdMembers(ctx) }, []Member{{ID: 12, Name: "cp-2", PeerHosts: []string{"192.0.2.12", "2001:db8::2"}}, {ID: 11, Learner: true, PeerHosts: []string{"::nonsense"}}}},
		"EtcdAlarms":  {func(ctx context.Context) (any, error) { return c.EtcdAlarms(ctx) }, []Alarm{{Member: 11, Name: "NOSPACE"}}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			calls = 0
			got, err := tc.read(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if calls != 1 { // Observe has a budget of calls.
				t.Errorf("calls: got %d, want 1", calls)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}

	for _, md := range m.metadata {
		if len(md.Get("node"))+len(md.Get("nodes")) > 0 {
			t.Errorf("a call asked to be proxied: %v", md)
		}
	}
	for _, r := range m.asked() {
		if r, ok := r.(*machineapi.EtcdMemberListRequest); ok && !r.GetQueryLocal() {
			t.Error("the member list was asked from any member, not from the machine's own")
		}
	}
}

func TestWrites(t *testing.T) {
	cases := map[string]struct {
		write func(context.Context, *Client) error
		want  proto.Message
	}{
		"ApplyAuto": {
			func(ctx context.Context, c *Client) error {
				_, err := c.ApplyConfig(ctx, []byte("x"), Auto)
				return err
			},
			&machineapi.ApplyConfigurationRequest{Data: []byte("x"), Mode: machineapi.ApplyConfigurationRequest_AUTO},
		},
		"ApplyNoReboot": {
			func(ctx context.Context, c *Client) error {
				_, err := c.ApplyConfig(ctx, []byte("x"), NoReboot)
				return err
			},
			&machineapi.ApplyConfigurationRequest{Data: []byte("x"), Mode: machineapi.ApplyConfigurationRequest_NO_REBOOT},
		},
		"ApplyStaged": {
			func(ctx context.Context, c *Client) error {
				_, err := c.ApplyConfig(ctx, []byte("x"), Staged)
				return err
			},
			&machineapi.ApplyConfigurationRequest{Data: []byte("x"), Mode: machineapi.ApplyConfigurationRequest_STAGED},
		},
		"Bootstrap": {func(ctx context.Context, c *Client) error { return c.Bootstrap(ctx) }, &machineapi.BootstrapRequest{}},
		"LeaveEtcd": {func(ctx context.Context, c *Client) error { return c.LeaveEtcd(ctx) }, &machineapi.EtcdLeaveClusterRequest{}},
		"RemoveMember": {
			func(ctx context.Context, c *Client) error { return c.RemoveMember(ctx, 7) },
			&machineapi.EtcdRemoveMemberByIDRequest{MemberId: 7},
		},
		"ForfeitLeadership": {
			func(ctx context.Context, c *Client) error { return c.ForfeitLeadership(ctx) },
			&machineapi.EtcdForfeitLeadershipRequest{},
		},
		"Reset": {
			func(ctx context.Context, c *Client) error {
				return c.Reset(ctx, ResetOptions{Wipe: []string{"STATE", "EPHEMERAL"}})
			},
			&machineapi.ResetRequest{Reboot: true, Mode: machineapi.ResetRequest_SYSTEM_DISK, SystemPartitionsToWipe: []*machineapi.ResetPartitionSpec{
				{Label: "STATE", Wipe: true}, {Label: "EPHEMERAL", Wipe: true},
			}},
		},
		"Reboot": {func(ctx context.Context, c *Client) error { return c.Reboot(ctx) }, &machineapi.RebootRequest{}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			m, c := running(t)
			if err := tc.write(t.Context(), c); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff([]any{tc.want}, m.asked(), protocmp.Transform()); diff != "" {
				t.Errorf("requests: -want +got:\n%s", diff)
			}
		})
	}
}

// To Talos no volumes means the whole disk. That must never be sent by leaving something out.
func TestInvalidWritesAreNotSent(t *testing.T) {
	m, c := running(t)
	for name, err := range map[string]error{
		"NoVolumes":  c.Reset(t.Context(), ResetOptions{}),
		"NoConfig":   second(c.ApplyConfig(t.Context(), nil, Auto)),
		"NoMode":     second(c.ApplyConfig(t.Context(), []byte("x"), 0)),
		"NoSuchMode": second(c.ApplyConfig(t.Context(), []byte("x"), 9)),
	} {
		if ClassOf(err) != Rejected {
			t.Errorf("%s: class: got %v, want %v", name, ClassOf(err), Rejected)
		}
	}
	if got := m.asked(); len(got) > 0 {
		t.Errorf("sent all the same: %v", got)
	}
}

func second[T any](_ T, err error) error { return err }

// An answer that says nothing is no answer: zero must not pass for a value.
func TestEmptyAnswers(t *testing.T) {
	ca := newAuthority(t)
	m := start(t, ca.configured(t))
	c := pool(t, Options{}).Machine(m.address(), ca.client(t))
	m.unary = func(_ context.Context, method string, _ any) (any, error) {
		return map[string]any{
			"Version":        &machineapi.VersionResponse{Messages: []*machineapi.Version{{}}},
			"ServiceList":    &machineapi.ServiceListResponse{Messages: []*machineapi.ServiceList{{}}},
			"EtcdStatus":     &machineapi.EtcdStatusResponse{Messages: []*machineapi.EtcdStatus{{}}},
			"EtcdMemberList": &machineapi.EtcdMemberListResponse{Messages: []*machineapi.EtcdMembers{{}}},
		}[method], nil
	}
	cases := map[string]struct {
		err  error
		want Class
	}{
		"System":      {second(c.System(t.Context())), NotFound},
		"Status":      {second(c.Status(t.Context())), NotFound},
		"Version":     {second(c.Version(t.Context())), Other},
		"BootID":      {second(c.BootID(t.Context())), Other},
		"Nodename":    {second(c.Nodename(t.Context())), NotFound},
		"EtcdService": {second(c.EtcdService(t.Context())), NotFound},
		"EtcdStatus":  {second(c.EtcdStatus(t.Context())), Other},
		"EtcdMembers": {second(c.EtcdMembers(t.Context())), Other},
	}
	for name, tc := range cases {
		if got := ClassOf(tc.err); got != tc.want {
			t.Errorf("%s: class: got %v, want %v: %v", name, got, tc.want, tc.err)
		}
	}
	m.create(t, hardware.NewSystemInformation(hardware.SystemInformationID))
	if err := second(c.System(t.Context())); ClassOf(err) != NotFound {
		t.Errorf("a machine without a UUID: class: got %v, want %v", ClassOf(err), NotFound)
	}
	m.create(t, k8s.NewNodename(k8s.NamespaceName, k8s.NodenameID))
	if err := second(c.Nodename(t.Context())); ClassOf(err) != NotFound {
		t.Errorf("a machine without a Node name: class: got %v, want %v", ClassOf(err), NotFound)
	}
	m.read = []string{strings.Repeat("x", maxBootID+1)}
	if err := second(c.BootID(t.Context())); ClassOf(err) != Other {
		t.Errorf("a boot ID without an end: class: got %v, want %v", ClassOf(err), Other)
	}
}

func TestCredentialsAreNotPrinted(t *testing.T) {
	c := Credentials{CA: []byte("the-ca"), Cert: []byte("the-cert"), Key: []byte("the-key")}
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%x", "%q"} {
		for _, v := range []any{c, &c, Config{Active: []byte("the-key")}} {
			got := fmt.Sprintf(verb, v)
			if strings.Contains(got, "the-") || strings.Contains(got, fmt.Sprintf("%x", "the-")) || strings.Contains(got, "0x74, 0x68, 0x65") || strings.Contains(got, "116 104 101") {
				t.Errorf("%s of %T prints %s", verb, v, got)
			}
		}
	}
}

func TestParseTalosconfig(t *testing.T) {
	b64 := base64.StdEncoding.EncodeToString
	const form = "context: home\ncontexts:\n  home:\n    endpoints: [192.0.2.1]\n    ca: %s\n    crt: %s\n    key: %s\n"
	cases := map[string]struct {
		reason, data, problem string
		want                  Credentials
	}{
		"Whole": {
			reason: "The current context has all that is needed.",
			data:   fmt.Sprintf(form, b64([]byte("CA")), b64([]byte("CRT")), b64([]byte("KEY"))),
			want:   Credentials{CA: []byte("CA"), Cert: []byte("CRT"), Key: []byte("KEY")},
		},
		"NoContext":   {reason: "The current context does not exist.", data: "context: away\ncontexts: {}\n", problem: `no context "away"`},
		"NoKey":       {reason: "A part is missing.", data: fmt.Sprintf(form, b64([]byte("CA")), b64([]byte("CRT")), `""`), problem: `no valid "key"`},
		"NotBase64":   {reason: "A part is broken, and is not shown.", data: fmt.Sprintf(form, b64([]byte("CA")), b64([]byte("CRT")), "hunter2!"), problem: `no valid "key"`},
		"NotYAML":     {reason: "It is something else, and is not shown.", data: "hunter2: [", problem: "no valid YAML"},
		"Empty":       {reason: "Nothing is there.", data: "", problem: "talosconfig"},
		"NullContext": {reason: "A context without anything in it.", data: "context: home\ncontexts:\n  home:\n", problem: "home"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got, err := ParseTalosconfig([]byte(tc.data))
			if tc.problem == "" {
				if err != nil {
					t.Fatalf("\n%s\n%v", tc.reason, err)
				}
				if diff := cmp.Diff(tc.want, got); diff != "" {
					t.Errorf("\n%s\n-want +got:\n%s", tc.reason, diff)
				}
				return
			}
			if err == nil || !strings.Contains(err.Error(), tc.problem) || strings.Contains(err.Error(), "hunter2") {
				t.Errorf("\n%s\nerror: got %v, want one that says %q and no secret", tc.reason, err, tc.problem)
			}
		})
	}
}
