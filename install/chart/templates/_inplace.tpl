{{/*
sluice.refuseInPlace fails if the release to upgrade is istio-cni's. Helm would delete istio-cni's DaemonSet, whose pods remove istio-cni
from the nodes' chains, before Sluice's pods run. Without access to a cluster, as in helm template, this cannot be detected.
*/}}
{{- define "sluice.refuseInPlace" -}}
{{- $release := .Release -}}
{{- if and $release.IsUpgrade (eq $release.Name (dig "metadata" "annotations" "meta.helm.sh/release-name" ""
  (lookup "apps/v1" "DaemonSet" $release.Namespace "istio-cni-node"))) -}}
{{- fail (join "\n" (list
  (printf "the release %s is istio-cni's: an upgrade to this chart would delete the DaemonSet %s/istio-cni-node, and istio-cni" $release.Name $release.Namespace)
  "would leave the CNI chains before Sluice is in them: mesh pods that start in between would run without redirection. Install Sluice"
  "as a second release, and then uninstall istio-cni (see README.md of the chart for Multus):"
  (printf "  helm install sluice CHART -n %s --wait -f VALUES" $release.Namespace)
  (printf "  helm uninstall %s -n %s" $release.Name $release.Namespace)
)) -}}
{{- end -}}
{{- end -}}

{{/*
sluice.refuseAmbientOff fails if an upgrade disables ambient mode while pods may be enrolled: they would keep rules that lead to ztunnel, and the
next ztunnel would not learn about them, because no agent would send them.
*/}}
{{- define "sluice.refuseAmbientOff" -}}
{{- $release := .Release -}}
{{- $installed := dig "data" dict (lookup "v1" "ConfigMap" $release.Namespace "sluice-node") -}}
{{- if and $release.IsUpgrade (not .v.ambient.enabled) (eq (dig "AMBIENT_ENABLED" "" $installed) "true") (ne (dig "AMBIENT_ENABLEMENT_SELECTOR" "" $installed) "[]") -}}
{{- fail (join "\n" (list
  "ambient mode cannot be disabled while it selects pods: enrolled pods would keep rules that lead to ztunnel, and no agent would tell"
  "ztunnel about them. First make the pods leave, then disable it:"
  (printf "  helm upgrade %s CHART -n %s --wait -f VALUES --set-json ambient.enablementSelectors=[]" $release.Name $release.Namespace)
  (printf "  helm upgrade %s CHART -n %s --wait -f VALUES" $release.Name $release.Namespace)
)) -}}
{{- end -}}
{{- end -}}
