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

package written

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

var epoch = time.Date(2026, time.January, 1, 12, 0, 0, 0, time.UTC)

func TestACacheThatIsBehindOnesOwnWriteIsKnownToBe(t *testing.T) {
	g := NewWithT(t)
	at := func(version string) client.Object {
		return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "x", ResourceVersion: version}}
	}
	var v Versions
	g.Expect(v.NewerThan(at("7"), epoch)).To(BeFalse(), "nothing was written")
	v.Note(at("10"), epoch)
	g.Expect(v.NewerThan(at("9"), epoch)).To(BeTrue(), "9 is older than 10, as numbers")
	g.Expect(v.NewerThan(at("9"), epoch)).To(BeTrue())
	g.Expect(v.NewerThan(at("10"), epoch)).To(BeFalse())
	v.Note(at("10"), epoch)
	g.Expect(v.NewerThan(at("11"), epoch)).To(BeFalse())
	v.Note(at("10"), epoch)
	v.Forget(client.ObjectKeyFromObject(at("10")))
	g.Expect(v.NewerThan(at("9"), epoch)).To(BeFalse())
}

// A restore of the database takes versions back, and no event ever brings the last one.
func TestAVersionThatNeverComesIsForgotten(t *testing.T) {
	g := NewWithT(t)
	restored := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "x", ResourceVersion: "3"}}
	lost := restored.DeepCopy()
	lost.ResourceVersion = "10"
	var v Versions
	v.Note(lost, epoch)
	g.Expect(v.NewerThan(restored, epoch.Add(Lag-time.Second))).To(BeTrue())
	g.Expect(v.NewerThan(restored, epoch.Add(Lag))).To(BeFalse())
	g.Expect(v.NewerThan(restored, epoch)).To(BeFalse(), "for good")
}
