package simulator

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/siderolabs/talos/pkg/machinery/api/machine"
	"github.com/siderolabs/talos/pkg/machinery/config"
	"github.com/siderolabs/talos/pkg/machinery/config/configloader"
	"github.com/siderolabs/talos/pkg/machinery/config/types/block/blockhelpers"
	"github.com/siderolabs/talos/pkg/machinery/constants"
)

const (
	// installTime is how long the installer takes.
	installTime = 30 * time.Second
	// serviceStart is how long the services of a boot take to start.
	serviceStart = 5 * time.Second
	// trustdRetry is the time between a worker's attempts to get a certificate from a control plane.
	trustdRetry = time.Second
)

func nothing(context.Context) error { return nil }

// boot takes the machine through its sequences: initialize (which waits for a configuration), install where that is due, and
// boot. A sequence that another one takes over ends the boot here; what took over says how it goes on.
func (s *system) boot() {
	if err := s.seq.run(s.ctx, "", seqInitialize, s.initializePhases(), false); err != nil {
		return
	}
	staged := s.m.disks.takeStagedUpgrade()
	if staged != "" || !s.m.disks.installed() {
		_ = s.seq.run(s.ctx, "", seqInstall, s.installPhases(staged), false)
		return
	}
	_ = s.seq.run(s.ctx, "", seqBoot, s.bootPhases(), false)
}

func (s *system) initializePhases() []phase {
	early := phase{name: "earlyServices"}
	for _, t := range []struct{ task, service string }{
		{"startUdevd", "udevd"},
		{"startMachined", "machined"},
		{"startApid", "apid"},
		{"startAuditd", "auditd"},
		{"startSyslogd", "syslogd"},
		{"startContainerd", "containerd"},
	} {
		early.tasks = append(early.tasks, task{name: t.task, run: func(context.Context) error {
			s.services.run(t.service)
			return nil
		}})
	}
	return []phase{
		single("systemRequirements", "enforceKSPPRequirements", nothing),
		early,
		single("usb", "waitForUSB", nothing),
		single("meta", "reloadMeta", func(context.Context) error {
			s.m.disks.reloadMeta()
			return nil
		}),
		single("dashboard", "startDashboard", func(context.Context) error {
			s.services.run("dashboard")
			return nil
		}),
		single("config", "loadConfig", s.loadConfig),
	}
}

// loadConfig finds the configuration: on STATE, else from the platform, else from whoever applies one in maintenance mode.
func (s *system) loadConfig(ctx context.Context) error {
	if data := s.m.disks.readConfig(); data != nil {
		if err := s.adopt(data, false); err != nil {
			return err
		}
	} else if data := s.m.platformConfig(); data != nil {
		if err := s.adopt(data, true); err != nil {
			return err
		}
	}
	if !s.configured() {
		if err := s.maintenance(ctx); err != nil {
			return err
		}
	}
	return s.openRunningAPI(ctx)
}

// adopt makes a configuration that was found at boot the active one.
func (s *system) adopt(data []byte, persist bool) error {
	cfg, err := configloader.NewFromBytes(data)
	if err != nil {
		s.publish("", &machine.ConfigLoadErrorEvent{Error: err.Error()})
		return fmt.Errorf("failed to load config: %w", err)
	}
	if err := s.setPersistent(cfg, persist); err != nil {
		return err
	}
	return s.setActive(cfg)
}

// maintenance serves the maintenance API until a configuration with a v1alpha1 document is there.
func (s *system) maintenance(ctx context.Context) error {
	s.publish("", &machine.TaskEvent{Task: "runningMaintenance", Action: machine.TaskEvent_START})
	defer s.publish("", &machine.TaskEvent{Task: "runningMaintenance", Action: machine.TaskEvent_STOP})

	if err := s.setAPI(apiMaintenance); err != nil {
		return err
	}
	select {
	case <-s.complete:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// openRunningAPI starts the mutual TLS API. A worker gets its certificate from a control plane and stays dark until one answers.
func (s *system) openRunningAPI(ctx context.Context) error {
	for {
		if _, err := s.certificate(); err == nil {
			return s.setAPI(apiRunning)
		}
		s.stopAPI(false)
		if err := sleep(ctx, s.scaled(trustdRetry)); err != nil {
			return err
		}
	}
}

// installPhases put Talos on the disk that the configuration names and reboot; with a staged version they upgrade instead.
func (s *system) installPhases(staged string) []phase {
	return []phase{
		single("env", "setUserEnvVars", nothing),
		single("install", "install", func(ctx context.Context) error {
			if err := sleep(ctx, s.scaled(installTime)); err != nil {
				return err
			}
			if staged != "" {
				return s.installVersion(staged)
			}
			return s.install()
		}),
		single("meta", "reloadMeta", nothing),
		single("saveMeta", "flushMeta", nothing),
		single("volumeFinalize", "teardownLifecycle", nothing),
		s.stopEverything(),
		single("kexec", "kexecPrepare", nothing),
		single("reboot", "reboot", s.endWith(endReboot)),
	}
}

// install puts the configured image on the configured disk, and the configuration with it.
func (s *system) install() error {
	cfg := s.activeConfig()
	if cfg == nil || cfg.Machine() == nil {
		return errors.New("no machine configuration")
	}
	disk, err := s.installDisk(s.ctx, cfg)
	if err != nil {
		return err
	}
	version := imageVersion(cfg.Machine().Install().Image(), s.version)
	if err := s.m.disks.install(disk, version); err != nil {
		return err
	}
	if persistent := s.persistentConfig(); persistent != nil {
		return s.setPersistent(persistent, true)
	}
	return nil
}

func (s *system) bootPhases() []phase {
	return []phase{
		single("memorySizeCheck", "memorySizeCheck", nothing),
		single("diskSizeCheck", "diskSizeCheck", nothing),
		single("env", "setUserEnvVars", func(context.Context) error {
			if s.m.faults.has(FaultUpgradeRollsBack) && s.m.disks.unprovedUpgrade() {
				return errors.New("simulated failure of the new version")
			}
			return nil
		}),
		single("dbus", "startDBus", nothing),
		single("ephemeral", "mountEphemeralPartition", s.mountEphemeral),
		single("udevSetup", "writeUdevRules", nothing),
		single("userDisks", "mountUserDisks", nothing),
		single("userSetup", "writeUserFiles", nothing),
		single("startEverything", "startAllServices", s.startAllServices),
	}
}

func (s *system) mountEphemeral(context.Context) error {
	if err := s.m.disks.provision(); err != nil {
		return err
	}
	s.mu.Lock()
	s.ephemeral = true
	s.mu.Unlock()
	return nil
}

// startAllServices starts what belongs to the machine's type and waits until all of it is up. A control plane without etcd
// waits here for Bootstrap, for up to 70 minutes; then the boot fails and the machine reboots.
func (s *system) startAllServices(ctx context.Context) error {
	if err := sleep(ctx, s.scaled(serviceStart)); err != nil {
		return err
	}
	s.services.run("cri")
	required := []string{"apid", "machined", "cri", "kubelet"}
	if s.activeConfig().Machine().Type().IsControlPlane() {
		s.services.run("trustd")
		required = append(required, "trustd", "etcd")
		if err := s.startEtcd(); err != nil {
			return err
		}
	}
	s.services.run("kubelet")
	s.startKubelet()

	ctx, cancel := context.WithTimeout(ctx, s.scaled(constants.BootTimeout))
	defer cancel()
	return s.services.awaitUp(ctx, required...)
}

// installDisk is the disk that the configuration chooses, by name or by expression.
func (s *system) installDisk(ctx context.Context, cfg config.Config) (string, error) {
	if disk := cfg.Machine().Install().Disk(); disk != "" {
		return disk, nil
	}
	expr, err := cfg.Machine().Install().DiskMatchExpression()
	if err != nil {
		return "", fmt.Errorf("cannot read disk selector: %w", err)
	}
	if expr == nil {
		return "", errors.New("no install disk is configured")
	}
	disks, err := blockhelpers.MatchDisks(ctx, s.cosi, expr)
	if err != nil {
		return "", fmt.Errorf("cannot select disk: %w", err)
	}
	if len(disks) == 0 {
		return "", fmt.Errorf("no disks matched the expression: %s", expr)
	}
	return disks[0].TypedSpec().DevPath, nil
}
