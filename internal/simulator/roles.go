package simulator

import (
	"context"
	"slices"

	"github.com/siderolabs/talos/pkg/machinery/role"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
)

// rolesMetadataKey carries the caller's roles from one machine's API to another's.
const rolesMetadataKey = "talos-role"

var (
	admins    = []role.Role{role.Admin}
	operators = []role.Role{role.Admin, role.Operator}
	readers   = []role.Role{role.Admin, role.Operator, role.Reader}
	backups   = []role.Role{role.Admin, role.Operator, role.EtcdBackup}
	etcdRead  = []role.Role{role.Admin, role.Operator, role.Reader, role.EtcdBackup}
	applying  = []role.Role{role.Admin, role.Reader}
	verifying = []role.Role{role.Admin, role.Operator, role.Reader, role.ImageVerifier}
	metaWrite = []role.Role{role.Admin, role.MetaWriter}
)

const (
	machineService   = "/machine.MachineService/"
	imageService     = "/machine.ImageService/"
	debugService     = "/machine.DebugService/"
	lifecycleService = "/machine.LifecycleService/"
	clusterService   = "/cluster.ClusterService/"
	inspectService   = "/inspect.InspectService/"
	storageService   = "/storage.StorageService/"
	timeService      = "/time.TimeService/"
	cosiService      = "/cosi.resource.State/"
)

// rules says who may call what. A method that is not listed is for admins only, as in Talos. ApplyConfiguration and
// BlockDeviceWipe admit readers here because maintenance mode makes everybody one; both check again for themselves.
var rules = buildRules()

func buildRules() map[string][]role.Role {
	r := map[string][]role.Role{}
	add := func(service string, roles []role.Role, methods ...string) {
		for _, m := range methods {
			r[service+m] = roles
		}
	}
	add(machineService, applying, "ApplyConfiguration")
	add(machineService, operators, "Reboot", "Shutdown", "Restart", "ServiceRestart", "ServiceStart", "ServiceStop",
		"PacketCapture", "ImagePull", "EtcdAlarmDisarm", "EtcdDefragment")
	add(machineService, backups, "EtcdSnapshot")
	add(machineService, etcdRead, "EtcdAlarmList", "EtcdMemberList", "EtcdStatus")
	add(machineService, readers, "CPUInfo", "CPUFreqStats", "Containers", "DiskStats", "DiskUsage", "Dmesg", "Events",
		"Hostname", "ImageList", "List", "LoadAvg", "Logs", "LogsContainers", "Memory", "Mounts", "NetworkDeviceStats",
		"Netstat", "Processes", "ServiceList", "Stats", "SystemStat", "Version")
	add(machineService, metaWrite, "MetaWrite", "MetaDelete")
	add(imageService, readers, "List")
	add(imageService, verifying, "Verify")
	add(imageService, operators, "Pull")
	add(clusterService, readers, "HealthCheck")
	add(inspectService, readers, "ControllerRuntimeDependencies")
	add(storageService, readers, "Disks")
	add(storageService, applying, "BlockDeviceWipe")
	add(timeService, readers, "Time", "TimeCheck")
	add(cosiService, readers, "Get", "List", "Watch")
	return r
}

// readOnly lists the methods that change nothing; every other one is mutating.
var readOnly = buildReadOnly()

func buildReadOnly() map[string]bool {
	r := map[string]bool{}
	for method, allowed := range rules {
		if slices.Contains(allowed, role.Reader) {
			r[method] = true
		}
	}
	delete(r, machineService+"ApplyConfiguration")
	delete(r, storageService+"BlockDeviceWipe")
	for _, m := range []string{"EtcdSnapshot", "Copy", "Read", "Kubeconfig", "PacketCapture", "GenerateClientConfiguration", "EtcdDowngradeValidate"} {
		r[machineService+m] = true
	}
	return r
}

// Mutating reports whether a gRPC method may change the machine or its cluster.
func Mutating(method string) bool {
	return !readOnly[method]
}

var errNotAuthorized = status.Error(codes.PermissionDenied, "not authorized")

// allowed reports whether the roles admit a call of the method.
func allowed(method string, roles role.Set) bool {
	want, ok := rules[method]
	if !ok {
		want = admins
	}
	return slices.ContainsFunc(want, roles.Includes)
}

type rolesKey struct{}

func withRoles(ctx context.Context, roles role.Set) context.Context {
	return context.WithValue(ctx, rolesKey{}, roles)
}

// rolesOf returns the roles of the call that ctx belongs to; none if it belongs to no call.
func rolesOf(ctx context.Context) role.Set {
	roles, ok := ctx.Value(rolesKey{}).(role.Set)
	if !ok {
		return role.MakeSet()
	}
	return roles
}

// certificateRoles reads the roles of an mTLS caller: the certificate's organizations, or, for another machine that
// forwards a call, the roles that it passes on. Unknown roles are kept; they allow nothing.
func certificateRoles(ctx context.Context) role.Set {
	p, ok := peer.FromContext(ctx)
	if !ok {
		return role.MakeSet()
	}
	info, ok := p.AuthInfo.(credentials.TLSInfo)
	if !ok || len(info.State.PeerCertificates) == 0 {
		return role.MakeSet()
	}
	roles, _ := role.Parse(info.State.PeerCertificates[0].Subject.Organization)
	if !roles.Includes(role.Impersonator) {
		return roles
	}
	md, _ := metadata.FromIncomingContext(ctx)
	if passed := md.Get(rolesMetadataKey); len(passed) > 0 {
		roles, _ = role.Parse(passed)
	}
	return roles
}
