package simulator

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"time"

	"github.com/siderolabs/talos/pkg/machinery/api/machine"
	"github.com/siderolabs/talos/pkg/machinery/config"
	"github.com/siderolabs/talos/pkg/machinery/config/configdiff"
	"github.com/siderolabs/talos/pkg/machinery/config/configloader"
	"github.com/siderolabs/talos/pkg/machinery/config/container"
	"github.com/siderolabs/talos/pkg/machinery/config/types/v1alpha1"
	"github.com/siderolabs/talos/pkg/machinery/constants"
	"github.com/siderolabs/talos/pkg/machinery/role"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// metal is the platform mode that configurations are validated for.
type metal struct{ installed bool }

func (metal) String() string          { return "metal" }
func (m metal) RequiresInstall() bool { return !m.installed }
func (metal) InContainer() bool       { return false }

const (
	textReboot   = "Applied configuration with a reboot"
	textNoReboot = "Applied configuration without a reboot"
	textStaged   = "Staged configuration to be applied after the next reboot"
)

// ApplyConfiguration checks a configuration and lets it take effect, as its mode says and as far as the mode can.
func (s *system) ApplyConfiguration(ctx context.Context, in *machine.ApplyConfigurationRequest) (*machine.ApplyConfigurationResponse, error) {
	if !s.applying.TryLock() {
		return nil, status.Error(codes.FailedPrecondition, "another apply configuration is already in progress")
	}
	defer s.applying.Unlock()

	s.mu.Lock()
	rebooting := s.rebooting
	s.mu.Unlock()
	if rebooting {
		return nil, status.Error(codes.FailedPrecondition,
			"configuration was already applied and node is rebooting, cannot apply more configuration changes until next reboot")
	}
	maintenance := !s.configured()
	if !maintenance && !rolesOf(ctx).Includes(role.Admin) {
		return nil, errNotAuthorized
	}
	if err := s.refuseMode(in.GetMode(), maintenance); err != nil {
		return nil, err
	}
	if in.GetMode() != machine.ApplyConfigurationRequest_TRY {
		// This comes before the configuration is even read: a call that fails, or a dry run, still ends a pending try, and the
		// tried configuration stays.
		s.cancelRollback()
	}
	cfg, warnings, err := s.check(ctx, in.GetData(), maintenance)
	if err != nil {
		return nil, err
	}
	p, err := s.plan(in, cfg, maintenance)
	if err != nil {
		return nil, err
	}
	if in.GetDryRun() {
		return s.dryRun(p, cfg, maintenance)
	}
	if s.m.faults.has(FaultApplyFails) {
		return nil, errors.New("failed to store the configuration: simulated failure")
	}
	if err := s.carryOut(in, p.mode, cfg); err != nil {
		return nil, err
	}
	reply := &machine.ApplyConfiguration{Mode: p.mode, Warnings: warnings, ModeDetails: p.text}
	if maintenance && s.is112() {
		reply.Mode = machine.ApplyConfigurationRequest_REBOOT // 1.12 does not set it, which reads as this
	}
	return &machine.ApplyConfigurationResponse{Messages: []*machine.ApplyConfiguration{reply}}, nil
}

// refuseMode turns down the modes that Talos 1.12's maintenance server does not know.
func (s *system) refuseMode(mode machine.ApplyConfigurationRequest_Mode, maintenance bool) error {
	if !maintenance || !s.is112() {
		return nil
	}
	switch mode {
	case machine.ApplyConfigurationRequest_AUTO, machine.ApplyConfigurationRequest_REBOOT, machine.ApplyConfigurationRequest_TRY:
		return nil
	case machine.ApplyConfigurationRequest_NO_REBOOT, machine.ApplyConfigurationRequest_STAGED:
	}
	name := strings.ToLower(strings.ReplaceAll(mode.String(), "_", "-"))
	return status.Errorf(codes.Unimplemented, "apply configuration --mode='%s' is not supported in maintenance mode", name)
}

// check reads and validates a configuration with Talos's own code.
func (s *system) check(ctx context.Context, data []byte, maintenance bool) (config.Provider, []string, error) {
	cfg, err := configloader.NewFromBytes(data)
	if err != nil {
		if maintenance && s.is112() {
			return nil, nil, fmt.Errorf("failed to parse config: %w", err)
		}
		return nil, nil, status.Error(codes.InvalidArgument, err.Error())
	}
	if !maintenance && cfg.RawV1Alpha1() == nil {
		return nil, nil, status.Error(codes.InvalidArgument,
			"the applied machine configuration doesn't contain v1alpha1 config, did you mean to patch the machine config instead?")
	}
	mode := metal{installed: s.m.disks.installed()}
	warnings, err := cfg.Validate(mode)
	if err != nil {
		return nil, nil, status.Error(codes.InvalidArgument, err.Error())
	}
	runtimeWarnings, err := cfg.RuntimeValidate(ctx, s.cosi, mode)
	if err != nil {
		return nil, nil, status.Error(codes.InvalidArgument, err.Error())
	}
	return cfg, append(warnings, runtimeWarnings...), nil
}

// An applyPlan is the mode that a request comes down to, and what the reply says of it.
type applyPlan struct {
	mode machine.ApplyConfigurationRequest_Mode
	base string // the mode's text alone
	text string
}

func (s *system) plan(in *machine.ApplyConfigurationRequest, cfg config.Provider, maintenance bool) (applyPlan, error) {
	mode := in.GetMode()
	if maintenance && mode == machine.ApplyConfigurationRequest_REBOOT {
		mode = machine.ApplyConfigurationRequest_NO_REBOOT
	}
	var reason string // why it cannot be without a reboot
	if !maintenance {
		reason = whyReboot(s.activeConfig(), cfg)
	}
	switch mode {
	case machine.ApplyConfigurationRequest_REBOOT:
		return applyPlan{mode, textReboot, textReboot}, nil
	case machine.ApplyConfigurationRequest_STAGED:
		return applyPlan{mode, textStaged, textStaged}, nil
	case machine.ApplyConfigurationRequest_AUTO:
		if reason != "" {
			return applyPlan{machine.ApplyConfigurationRequest_REBOOT, textReboot, textReboot + ": " + reason}, nil
		}
		return applyPlan{machine.ApplyConfigurationRequest_NO_REBOOT, textNoReboot, textNoReboot}, nil
	case machine.ApplyConfigurationRequest_NO_REBOOT, machine.ApplyConfigurationRequest_TRY:
		if reason != "" {
			return applyPlan{}, status.Error(codes.InvalidArgument, reason)
		}
		p := applyPlan{mode, textNoReboot, textNoReboot}
		if mode == machine.ApplyConfigurationRequest_TRY {
			p.text += "\nThe config is applied in 'try' mode and will be automatically reverted back in " + tryTimeout(in).String()
		}
		return p, nil
	}
	return applyPlan{}, fmt.Errorf("incorrect mode '%s' specified for the apply config call", mode)
}

func tryTimeout(in *machine.ApplyConfigurationRequest) time.Duration {
	if in.GetTryModeTimeout() != nil {
		return in.GetTryModeTimeout().AsDuration()
	}
	return constants.ConfigTryTimeout
}

func (s *system) dryRun(p applyPlan, cfg config.Provider, maintenance bool) (*machine.ApplyConfigurationResponse, error) {
	reply := &machine.ApplyConfiguration{Mode: p.mode}
	if maintenance && s.is112() {
		reply.Mode = machine.ApplyConfigurationRequest_REBOOT
		reply.ModeDetails = "Dry run summary:\nNode is running in maintenance mode and does not have a config yet."
		return &machine.ApplyConfigurationResponse{Messages: []*machine.ApplyConfiguration{reply}}, nil
	}
	var old config.Provider
	if old = s.activeConfig(); old == nil {
		old = container.NewV1Alpha1(nil)
	}
	diff, err := configdiff.DiffConfigs(old, cfg)
	if err != nil {
		return nil, fmt.Errorf("failed to generate diff: %w", err)
	}
	if diff == "" {
		diff = "No changes."
	}
	reply.ModeDetails = fmt.Sprintf("Dry run summary:\n%s (skipped in dry-run).\nConfig diff:\n\n%s", p.base, diff)
	return &machine.ApplyConfigurationResponse{Messages: []*machine.ApplyConfiguration{reply}}, nil
}

func (s *system) carryOut(in *machine.ApplyConfigurationRequest, mode machine.ApplyConfigurationRequest_Mode, cfg config.Provider) error {
	switch mode {
	case machine.ApplyConfigurationRequest_TRY:
		s.rollbackAfter(s.scaled(tryTimeout(in)))
		return s.setActive(cfg)
	case machine.ApplyConfigurationRequest_STAGED:
		return s.setPersistent(cfg, true)
	case machine.ApplyConfigurationRequest_REBOOT:
		if err := s.setPersistent(cfg, true); err != nil {
			return err
		}
		s.mu.Lock()
		s.rebooting = true
		s.mu.Unlock()
		s.start("", seqReboot, s.rebootPhases(machine.RebootRequest_DEFAULT), true)
		return nil
	case machine.ApplyConfigurationRequest_NO_REBOOT, machine.ApplyConfigurationRequest_AUTO:
	}
	if err := s.setPersistent(cfg, true); err != nil {
		return err
	}
	return s.setActive(cfg)
}

// rollbackAfter brings the configuration of now back after a while, unless another call comes first.
func (s *system) rollbackAfter(d time.Duration) {
	s.cancelRollback()
	s.mu.Lock()
	defer s.mu.Unlock()

	before := s.active
	s.rollback = time.AfterFunc(d, func() {
		s.log.Info("rolling back the configuration")
		if err := s.setActive(before); err != nil {
			s.log.Warn("cannot roll back the configuration", "error", err)
		}
	})
}

func (s *system) cancelRollback() {
	s.mu.Lock()
	defer s.mu.Unlock()

	if s.rollback != nil {
		s.rollback.Stop()
		s.rollback = nil
	}
}

// whyReboot returns why a change of the v1alpha1 document needs a reboot, or nothing. Other documents never do.
func whyReboot(current, next config.Provider) string {
	if current == nil {
		return "no current config"
	}
	was, will := current.RawV1Alpha1(), next.RawV1Alpha1()
	if was == nil {
		return "current config is not v1alpha1"
	}
	if will == nil {
		return "new config is not v1alpha1"
	}
	rest := will.DeepCopy()
	ignoreImmediate(rest, was)
	if reflect.DeepEqual(was, rest) {
		return ""
	}
	diff, err := configdiff.DiffConfigs(container.NewV1Alpha1(was), container.NewV1Alpha1(rest))
	if err != nil {
		return "error calculating diff: " + err.Error()
	}
	return "this config change can't be applied in immediate mode\ndiff:\n" + diff
}

// immediateFields are the fields of `machine` that take effect without a reboot; debug and all of `cluster` do as well.
var immediateFields = []string{
	"MachineCA", "MachineAcceptedCAs", "MachineTime", "MachineCertSANs", "MachineInstall", "MachineNetwork", "MachineSysfs",
	"MachineSysctls", "MachineLogging", "MachineControlPlane", "MachineKubelet", "MachineKernel", "MachineRegistries", "MachinePods",
	"MachineSeccompProfiles", "MachineNodeAnnotations", "MachineNodeLabels", "MachineNodeTaints",
}

// immediateFeatures are the same within `machine.features`.
var immediateFeatures = []string{
	"KubernetesTalosAPIAccessConfig", "KubePrismSupport", "HostDNSSupport", "ImageCacheSupport", "FeatureNodeAddressSortAlgorithm",
}

// ignoreImmediate makes cfg equal to current in all that takes effect at once, so that what still differs needs a reboot.
func ignoreImmediate(cfg, current *v1alpha1.Config) {
	cfg.ConfigDebug, cfg.ClusterConfig = current.ConfigDebug, current.ClusterConfig
	if cfg.MachineConfig == nil || current.MachineConfig == nil {
		return
	}
	copyFields(cfg.MachineConfig, current.MachineConfig, immediateFields)
	if cfg.MachineConfig.MachineFeatures != nil && current.MachineConfig.MachineFeatures != nil {
		copyFields(cfg.MachineConfig.MachineFeatures, current.MachineConfig.MachineFeatures, immediateFeatures)
	}
}

func copyFields(dst, src any, names []string) {
	to, from := reflect.ValueOf(dst).Elem(), reflect.ValueOf(src).Elem()
	for _, name := range names {
		to.FieldByName(name).Set(from.FieldByName(name))
	}
}
