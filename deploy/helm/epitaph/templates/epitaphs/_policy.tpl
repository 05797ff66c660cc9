{{- /* Bounds of the objects of both kinds, which neither their schemas nor Kubernetes have: etcd holds ten thousand of them. */}}

{{- /* What a write changes besides report, observer's field, labels, annotations and owners. One finalizer fewer is no such change. The
  argument: a user whose writes that change nothing are matched, too. */}}
{{- define "epitaph.policy.changes" }}
        object.metadata.?generateName.orValue('') != oldObject.metadata.?generateName.orValue('') ||
        object.metadata.?finalizers.orValue([]).size() > oldObject.metadata.?finalizers.orValue([]).size() ||
        {{ with . }}request.userInfo.username == {{ . | squote }} ||
        {{ end -}}
        (object.metadata.?finalizers.orValue([]).size() == oldObject.metadata.?finalizers.orValue([]).size() && (
        object.metadata.?finalizers.orValue([]) != oldObject.metadata.?finalizers.orValue([]) ||
        dyn(object.metadata.?managedFields.orValue([])) != dyn(oldObject.metadata.?managedFields.orValue([]))))
{{- end }}

{{- define "epitaph.policy.variables" }}
    # The schema bounds each text, and not all of them together.
    - name: reportSize
      expression: >-
        dyn(object.report).map(field, dyn(object.report)[field]).map(value, type(value) == string ? value.size() :
        type(value) == map ? value.map(name, type(value[name]) == string ? value[name].size() : 0).sum() :
        type(value) == list ? value.map(entry, type(entry) == string ? entry.size() :
        entry.map(name, type(entry[name]) == string ? entry[name].size() : 0).sum()).sum() : 0).sum()
    # Who manages which field: a part of the object that whoever writes it may write as well. The names in it have three levels, such as
    # metadata, labels and a label. A fourth one is too much.
    - name: managed
      expression: >-
        dyn(object.metadata.?managedFields.orValue([]))
    - name: managedSize
      expression: >-
        variables.managed.map(of, dyn(of.?fieldsV1.orValue({})).map(a, a.size() + dyn(of.fieldsV1[a]).map(b, b.size() +
        dyn(of.fieldsV1[a][b]).map(c, of.fieldsV1[a][b][c].size() == 0 ? c.size() : 100000).sum()).sum()).sum()).sum()
{{- end }}

{{- define "epitaph.policy.validations" }}
    - expression: variables.reportSize <= 4096
      reason: Forbidden
      message: the texts of {{ . }} may have at most 4096 characters
    # Kubernetes merges those who update beyond ten, and none who apply. Agent and observer are two.
    - expression: variables.managed.size() <= 12 && variables.managedSize <= 4096
      reason: Forbidden
      message: {{ . }} may have at most 12 field managers, and names of at most 4096 characters in their fields
    # Kubernetes bounds it at the creation alone.
    - expression: object.metadata.?generateName.orValue('').size() <= 253
      reason: Forbidden
      message: {{ . }} may have a generateName of at most 253 characters
    # Kubernetes bounds neither their number nor their length. The object outlives pod and node.
    - expression: object.metadata.?ownerReferences.orValue([]).size() == 0
      reason: Forbidden
      message: {{ . }} must not have an owner
    # For what webhooks of the cluster add. One annotation alone may have 256 KiB.
    - expression: >-
        object.metadata.?labels.orValue({}).size() <= 16 && object.metadata.?annotations.orValue({}).size() <= 8 &&
        object.metadata.?annotations.orValue({}).all(key, object.metadata.annotations[key].size() <= 512)
      reason: Forbidden
      message: {{ . }} may have at most 16 labels, and at most 8 annotations of at most 512 characters each
{{- end }}
