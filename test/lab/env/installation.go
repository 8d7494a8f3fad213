/*
Copyright 2026 The capi-fleet Authors.

Licensed under the Apache License, Version 2.0 (the "License");
you may not use this file except in compliance with the License.
You may obtain a copy of the License at

    http://www.apache.org/licenses/LICENSE-2.0

Unless required by applicable law or agreed to in writing, software
distributed under the License is distributed on an "AS IS" BASIS,
WITHOUT WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied.
See the License for the specific language governing permissions and
limitations under the License.
*/

package env

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// BareConfig is for Options.ConfigDir: what is on a management cluster before capi-fleet, as
// far as clusterctl looks at it.
const BareConfig = "test/lab/bare"

// managerDeployment is the Deployment of an installation.
var managerDeployment = client.ObjectKey{Namespace: ManagerNamespace, Name: "capi-fleet-manager"}

// notHere are the flags of the Deployment that a manager of the lab has otherwise, since
// here others listen too, and all on loopback.
var notHere = []string{"--diagnostics-address", "--insecure-diagnostics", "--denied-ranges"}

// InstalledManager makes a manager as the Deployment of an installation says, apart from
// what cannot be on one machine twice or is not on it at all. It does not run until Start.
// Where nothing is installed, the error is that of a Deployment which is not found.
func (l *Lab) InstalledManager(ctx context.Context, name string) (*Manager, error) {
	deployment := &appsv1.Deployment{}
	if err := l.Client.Get(ctx, managerDeployment, deployment); err != nil {
		return nil, err
	}
	args := slices.DeleteFunc(deployment.Spec.Template.Spec.Containers[0].Args, func(arg string) bool {
		flag, _, _ := strings.Cut(arg, "=")
		return slices.Contains(notHere, flag)
	})
	return l.NewManager(ctx, name, args...)
}

// FollowInstallation runs the manager while the Deployment of an installation is there, and
// starts it anew when that changes, until ctx ends. It is for a lab with NoManager, whose
// user installs. What goes wrong it logs, and tries again.
func (l *Lab) FollowInstallation(ctx context.Context) error {
	if err := l.buildManager(ctx); err != nil {
		return err
	}
	f := &follower{lab: l}
	for ctx.Err() == nil {
		if err := f.follow(ctx); err != nil && ctx.Err() == nil {
			l.opts.Log("the installation: %v", err)
		}
		pause(ctx, time.Second)
	}
	return f.stop()
}

// follower runs the manager of an installation.
type follower struct {
	lab     *Lab
	manager *Manager // nil where none runs
	// revision is that of the Deployment that the manager runs for.
	revision string
}

func (f *follower) follow(ctx context.Context) error {
	deployment := &appsv1.Deployment{}
	err := f.lab.Client.Get(ctx, managerDeployment, deployment)
	if client.IgnoreNotFound(err) != nil {
		return err
	}
	revision := ""
	if err == nil {
		revision = fmt.Sprintf("%s/%d", deployment.UID, deployment.Generation)
	}
	if revision == f.revision {
		return nil
	}
	if err := f.stop(); err != nil || revision == "" {
		return err
	}
	manager, err := f.lab.InstalledManager(ctx, "manager")
	if err != nil {
		return err // as long as its account is not there
	}
	if err := manager.Start(ctx); err != nil {
		return err
	}
	f.manager, f.revision = manager, revision
	return nil
}

func (f *follower) stop() error {
	if f.manager == nil {
		return nil
	}
	if err := f.manager.Stop(); err != nil {
		return err
	}
	f.lab.opts.Log("the installation: the manager has ended")
	f.manager, f.revision = nil, ""
	return nil
}
